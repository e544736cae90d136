// The program keeps to --memory: also memory that no ledger names counts here. It runs in a memory
// cgroup, where one can be made, that kills it a little above its budget; and its peak of resident
// memory is held against what its ledger names.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "base/test_folder.h"
#include "memory_group.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "test_budgets.h"

namespace hearth {
namespace {

// By how much the group may pass the budget: page tables and what the kernel keeps of a process.
constexpr uint64_t kGroupMarginBytes = uint64_t{1} << 20;
// By how much resident memory may pass what the ledger names, beside what the program has without a
// model: stacks, allocator slack, code that only larger models need.
constexpr uint64_t kResidentMarginBytes = uint64_t{4} << 20;

// What is resident at the most beyond what the ledger names beside the program.
int64_t UnnamedBytes(const nlohmann::json& memory) {
  auto bytes = memory["rss_peak_bytes"].get<int64_t>();
  for (const auto& [name, charged] : memory["ledger"].items()) {
    if (name != "program") bytes -= charged.get<int64_t>();
  }
  return bytes;
}

uint64_t SumOf(const nlohmann::json& ledger) {
  uint64_t sum = 0;
  for (const auto& [name, charged] : ledger.items()) sum += charged.get<uint64_t>();
  return sum;
}

class MemoryLimitTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("memory_limit");
    SynthesizeSparseModel(Packed());  // 36 MiB of neurons
    MakeModel(Plain(),
              R"({"arch": "llama", "hidden_size": 1024, "intermediate_size": 8192, "num_layers": 4,
                  "num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 300})",
              DType::kQ8_0);  // 102 MiB of matrices
    MakeModel(Deep(),
              R"({"arch": "llama", "hidden_size": 128, "intermediate_size": 256, "num_layers": 16,
                  "num_heads": 4, "num_kv_heads": 4, "head_dim": 64, "vocab_size": 300})",
              DType::kQ8_0);
    MakeModel(Tiny(), ShapeText(64, 96, kDenseShape), DType::kQ8_0);
  }
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Packed() { return folder_->Path("packed.gguf"); }
  static std::string Plain() { return folder_->Path("plain.gguf"); }
  static std::string Deep() { return folder_->Path("deep.gguf"); }
  static std::string Tiny() { return folder_->Path("tiny.gguf"); }

  static ProgramResult Bench(const std::string& model, const std::string& mode,
                             const std::string& memory, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"bench",    model,       "--mode", mode,        "--memory",
                                    memory,     "--threads", "2",      "--prefill", "32",
                                    "--decode", "16",        "--reps", "1",         "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return RunHearth(all);
  }
  static nlohmann::json MemoryOf(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? nlohmann::json::parse(result.out)["memory"] : nlohmann::json();
  }

  static void ExpectKept(const std::string& model, const std::string& mode, uint64_t mib,
                         const std::vector<std::string>& more = {}) {
    SCOPED_TRACE(model + " " + mode + " in " + std::to_string(mib) + "M");
    const std::string limit = std::to_string(mib) + "M";
    const nlohmann::json tiny = MemoryOf(Bench(Tiny(), "dense", "2G"));
    const nlohmann::json memory = MemoryOf(Bench(model, mode, limit, more));
    ASSERT_TRUE(memory.is_object() && tiny.is_object());
    EXPECT_LE(SumOf(memory["ledger"]), mib << 20);
    EXPECT_LE(UnnamedBytes(memory),
              UnnamedBytes(tiny) + static_cast<int64_t>(kResidentMarginBytes));
    EXPECT_LE(memory["rss_peak_bytes"].get<uint64_t>(), (mib << 20) + kGroupMarginBytes);

    const MemoryGroup group((mib << 20) + kGroupMarginBytes);
    if (!group.is_usable()) return;
    const ProgramResult result = Bench(model, mode, limit, more);
    EXPECT_EQ(result.exit_code, 0) << result.err << " (137: killed for its memory)";
  }

  static uint64_t SmallestMib(const std::string& model, const std::string& mode) {
    return LimitOfRefusal(Bench(model, mode, "1M").err) >> 20;
  }

  static TestFolder* folder_;
};

TestFolder* MemoryLimitTest::folder_ = nullptr;

TEST_F(MemoryLimitTest, APackedModelInMemory) {
  const nlohmann::json memory = MemoryOf(Bench(Packed(), "predicted", "4G"));
  ASSERT_TRUE(memory.is_object());
  ASSERT_FALSE(memory["ledger"].contains("neurons"));
  ExpectKept(Packed(), "predicted", (SumOf(memory["ledger"]) >> 20) + 5);
}

TEST_F(MemoryLimitTest, APackedModelThatIsStreamed) {
  for (const char* mode : {"predicted", "gated"}) {
    ExpectKept(Packed(), mode, SmallestMib(Packed(), mode) + 6);
  }
}

TEST_F(MemoryLimitTest, APlainModelThatIsStreamed) {
  ExpectKept(Plain(), "dense", SmallestMib(Plain(), "dense") + 24);
}

// All keys and values would take 64 MiB more than the limit.
TEST_F(MemoryLimitTest, AContextThatLiesOnFlash) {
  const std::vector<std::string> context = {"--ctx", "3072", "--context", "3000", "--kv", "f32"};
  const nlohmann::json whole = MemoryOf(Bench(Deep(), "dense", "4G", context));
  ASSERT_TRUE(whole.is_object());
  ASSERT_GT(whole["ledger"]["kv cache"], uint64_t{90} << 20);
  uint64_t bytes = SumOf(whole["ledger"]);
  if (const auto probe = whole["ledger"].find("bandwidth probe"); probe != whole["ledger"].end()) {
    bytes -= probe->get<uint64_t>();
  }
  const uint64_t mib = (bytes >> 20) - 64;
  std::vector<std::string> spilling = context;
  spilling.insert(spilling.end(), {"--kv-dir", folder_->Path("")});
  const nlohmann::json spilled =
      MemoryOf(Bench(Deep(), "dense", std::to_string(mib) + "M", spilling));
  ASSERT_TRUE(spilled.is_object() && spilled["kv"]["flash"].is_object());
  ASSERT_GT(spilled["kv"]["flash"]["read_bytes"], 0);
  ExpectKept(Deep(), "dense", mib, spilling);
}

// What the program itself takes, its code included, is a matter of small models. Their prompts are
// read in passes of fewer tokens where memory is that short.
TEST_F(MemoryLimitTest, ASmallModelRunsIn24M) {
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  ExpectKept(model, "dense", 24);
  const auto tell = [&](const std::string& memory) {
    std::string prompt = "The old king";
    for (int i = 0; i < 40; ++i) prompt += " was kind and wise";
    return RunHearth(
        {"run", model, "--raw", "-p", prompt, "-n", "60", "--temp", "0", "--memory", memory});
  };
  const ProgramResult short_of_memory = tell("24M"), with_plenty = tell("2G");
  EXPECT_EQ(short_of_memory.exit_code, 0) << short_of_memory.err;
  EXPECT_EQ(short_of_memory.out, with_plenty.out);
}

// Where the system does not allow it, one sentence says so and the model runs.
TEST_F(MemoryLimitTest, WhatIsHeldIsLockedOrTheLimitIsNamed) {
  const ProgramResult result = RunHearth(
      {"run", Packed(), "--raw", "-p", "a", "-n", "2", "--memory", "2G", "--lock", "--verbose"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const bool is_locked = result.err.find("all of it is locked in memory") != std::string::npos;
  const bool is_refused = result.err.find("memory is not locked") != std::string::npos;
  EXPECT_NE(is_locked, is_refused) << result.err;
}

// A model is worth nothing for this that would not be missed.
TEST_F(MemoryLimitTest, WhatIsHeldIsMuchMoreThanTheMargins) {
  const nlohmann::json memory = MemoryOf(Bench(Packed(), "predicted", "4G"));
  ASSERT_TRUE(memory.is_object());
  EXPECT_GT(memory["ledger"]["weights"].get<uint64_t>(), 2 * kResidentMarginBytes);
}

}  // namespace
}  // namespace hearth
