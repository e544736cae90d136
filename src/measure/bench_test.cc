#include "measure/bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

// A model so small that only a limit keeps the probe, 256 MiB at least, from taking memory of its
// own. The rest counts what the program holds, which tests before this and sanitizers add to.
std::unique_ptr<Engine> SmallEngine() {
  const std::string path = SourcePath("tests/goldens/llama.gguf");
  const auto engine = Engine::Load(path, {.threads = 2});
  const uint64_t limit = engine->budget().used_bytes() + (uint64_t{200} << 20);
  return Engine::Load(path, {.memory_bytes = limit, .threads = 2});
}

TEST(BenchTest, MeasuresWhatItWasAskedFor) {
  const auto engine = SmallEngine();
  const ProbeMemory memory(*engine);
  EXPECT_TRUE(memory.bytes().empty());
  EXPECT_NE(memory.missing(), "");
  uint64_t last_done = 0, last_total = 0;
  const BenchResult result =
      RunBench(*engine, memory, {.prefill_tokens = {3, 70}, .decode_tokens = 4, .repetitions = 3},
               [&](uint64_t done, uint64_t total, const std::string&) {
                 EXPECT_GE(done, last_done);
                 last_done = done;
                 last_total = total;
               });
  EXPECT_EQ(last_done, 3u * (3 + 70 + BenchOptions().decode_context + 4));
  EXPECT_EQ(last_total, last_done);
  ASSERT_EQ(result.prefill.size(), 2u);
  EXPECT_EQ(result.prefill[1].tokens, 70);
  for (const PrefillResult& prefill : result.prefill) {
    EXPECT_GT(prefill.tok_s.min, 0);
    EXPECT_LE(prefill.tok_s.min, prefill.tok_s.median);
    EXPECT_LE(prefill.tok_s.median, prefill.tok_s.max);
  }
  EXPECT_EQ(result.decode.latencies_ms.size(), 12u);
  EXPECT_GT(Total(result.decode.work).bytes, 0);
  EXPECT_FALSE(result.read_bytes_per_s.has_value());
  EXPECT_GT(result.int8_macs_per_s, 0);
  EXPECT_EQ(engine->kv_pool().free_pages(), engine->kv_pool().num_pages());
}

TEST(BenchTest, AContextThatRepeatsItselfIsNotComputed) {
  const auto engine = SmallEngine();
  const int64_t context = engine->context() - 4;
  const ProbeMemory memory(*engine);
  BenchOptions options{.prefill_tokens = {5},
                       .decode_tokens = 3,
                       .decode_context = context,
                       .repeats_context = true,
                       .repetitions = 1};
  uint64_t last_done = 0;
  const BenchResult result =
      RunBench(*engine, memory, options,
               [&](uint64_t done, uint64_t, const std::string&) { last_done = done; });
  EXPECT_EQ(result.decode.context, context);
  EXPECT_EQ(result.decode.latencies_ms.size(), 3u);
  EXPECT_EQ(last_done, static_cast<uint64_t>(5 + context + 3));
  EXPECT_EQ(engine->kv_pool().free_pages(), engine->kv_pool().num_pages());
}

TEST(BenchTest, AProfileHasAllOpsOfTheModel) {
  const auto engine = SmallEngine();
  const ProbeMemory memory(*engine);
  BenchOptions options{.prefill_tokens = {5}, .decode_tokens = 2, .repetitions = 1};
  EXPECT_EQ(RunBench(*engine, memory, options).decode.op_seconds, OpSeconds{});
  options.profile = true;
  const BenchResult result = RunBench(*engine, memory, options);
  for (size_t op = 0; op < kNumPassOps; ++op) {
    const auto name = static_cast<PassOp>(op);
    const bool has = name != PassOp::kRouter && name != PassOp::kFfnPredictor;
    EXPECT_EQ(result.decode.op_seconds[op] > 0, has) << op;
    EXPECT_EQ(result.prefill[0].op_seconds[op] > 0, has) << op;
  }
}

// 62 of 64 tokens are 96.9%, and no measurement.
TEST(BenchTest, QualityIsOfAThousandTokens) {
  const auto engine = Engine::Load(SourcePath("tests/goldens/llama-drelu.gguf"), {.threads = 2});
  const ProbeMemory memory(*engine);
  const BenchResult result =
      RunBench(*engine, memory, {.prefill_tokens = {5}, .decode_tokens = 2, .repetitions = 1});
  ASSERT_TRUE(result.quality);
  EXPECT_GE(result.quality_tokens, 1024);
  // The share is that of so many tokens' neurons, and of no 64 tokens'.
  const ModelSpec& spec = engine->model().spec();
  const auto active_of = [&](int64_t tokens) {
    return result.quality->active.value() *
           static_cast<double>(tokens * spec.num_layers * MainFfn(spec).intermediate_size);
  };
  EXPECT_NEAR(active_of(result.quality_tokens), std::round(active_of(result.quality_tokens)), 1e-3);
  EXPECT_GT(std::abs(active_of(64) - std::round(active_of(64))), 1e-3);
}

TEST(BenchTest, RefusesWhatDoesNotFitTheContext) {
  const auto engine = SmallEngine();
  const ProbeMemory memory(*engine);
  const auto context = engine->context();
  EXPECT_THROW(RunBench(*engine, memory, {.prefill_tokens = {context + 1}}), Error);
  EXPECT_THROW(RunBench(*engine, memory, {.prefill_tokens = {1}, .decode_tokens = context}), Error);
}

}  // namespace
}  // namespace hearth
