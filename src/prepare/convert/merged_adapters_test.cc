// Adapters that were merged into a file, compared with the same ones beside the base.
#include "prepare/convert/merged_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "base/test_folder.h"
#include "engine/engine.h"
#include "prepare/convert/convert.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string Golden(const std::string& name) { return SourcePath("tests/goldens/" + name); }

class MergedAdaptersTest : public ::testing::Test {
 protected:
  ConvertResult Merge(const std::string& base, std::vector<AdapterOption> adapters,
                      std::optional<DType> type = {}) const {
    return ConvertModel(GgufFile::Open(Golden(base + ".gguf")),
                        {.type = type, .adapters = std::move(adapters)}, merged_, {});
  }
  static std::vector<float> Logits(const std::string& model,
                                   std::vector<AdapterOption> adapters = {}) {
    EngineOptions options;
    options.kv_codec = KvCodec::kF32;
    options.threads = 2;
    options.adapters = std::move(adapters);
    const auto engine = Engine::Load(model, options);
    KvSequence kv(engine->kv_pool());
    std::vector<TokenId> tokens(20);
    std::iota(tokens.begin(), tokens.end(), 30);
    const BatchSequence sequence{&kv, tokens};
    engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->prefill_selector());
    std::vector<float> all;
    for (int64_t row = 0; row < std::ssize(tokens); ++row) {
      const FloatView logits = engine->pass().Logits(row, 1);
      all.insert(all.end(), logits.row(0), logits.row(0) + logits.cols);
    }
    return all;
  }
  // max|a - b| / max|b|.
  static double Difference(const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
      largest = std::max(largest, std::abs(double{b[i]}));
    }
    return most / largest;
  }
  void ExpectMergedAsBeside(const std::string& base, const std::vector<AdapterOption>& adapters) {
    const ConvertResult result = Merge(base, adapters);
    EXPECT_GT(result.num_merged, 0u) << base;
    EXPECT_EQ(result.merge_error, 0) << "F32 stays F32";
    const auto beside = Logits(Golden(base + ".gguf"), adapters);
    EXPECT_LE(Difference(Logits(merged_), beside), 1e-5) << base;
    EXPECT_GE(Difference(Logits(Golden(base + ".gguf")), beside), 1e-3) << base;
  }

  TestFolder out_{"hearth_merged_adapters"};
  const std::string merged_ = out_.Path("merged.gguf");
};

TEST_F(MergedAdaptersTest, MergedComputesWhatAnAdapterBesideTheBaseDoes) {
  for (const char* base : {"llama", "gemma3", "phi3", "gpt2", "qwen2moe"}) {
    ExpectMergedAsBeside(base, {{Golden("adapters/" + std::string(base) + "-a"), 0.75f}});
  }
}

TEST_F(MergedAdaptersTest, SeveralAreAddedAndWeightZeroChangesNothing) {
  const std::string a = Golden("adapters/llama-a"), b = Golden("adapters/llama-b");
  ExpectMergedAsBeside("llama", {{a, 0.5f}, {b, -1.5f}});
  Merge("llama", {{a, 0}});
  EXPECT_EQ(Logits(merged_), Logits(Golden("llama.gguf")));
}

TEST_F(MergedAdaptersTest, RoundingIsTold) {
  const std::vector<AdapterOption> adapters = {{Golden("adapters/llama-a"), 1}};
  const double half = Merge("llama", adapters, DType::kF16).merge_error;
  const double brain = Merge("llama", adapters, DType::kBF16).merge_error;
  // Half a unit in the last place at most, of 11 and of 8 bits.
  EXPECT_GT(half, 0);
  EXPECT_LT(half, std::ldexp(1.0, -11));
  EXPECT_GT(brain, half);
  EXPECT_LT(brain, std::ldexp(1.0, -8));
  EXPECT_EQ(Merge("llama", {}, DType::kF16).num_merged, 0u);
}

// Any cut of a tensor gives the same numbers.
TEST_F(MergedAdaptersTest, NumbersAreAddedWhereverTheyBegin) {
  const GgufFile base = GgufFile::Open(Golden("phi3.gguf"));
  Budget budget;
  const AdapterOption adapter = {Golden("adapters/phi3-a"), 1};
  const MergedAdapters merged(base, {&adapter, 1}, budget);
  for (const GgufTensor& tensor : base.tensors()) {
    if (!merged.Change(tensor.name)) continue;
    std::vector<float> whole(tensor.num_weights()), cut(whole.size());
    merged.AddTo(tensor, 0, whole);
    for (size_t begin = 0; begin < cut.size(); begin += 37) {
      merged.AddTo(tensor, begin,
                   std::span(cut).subspan(begin, std::min<size_t>(37, cut.size() - begin)));
    }
    EXPECT_EQ(cut, whole) << tensor.name;
    EXPECT_TRUE(std::any_of(whole.begin(), whole.end(), [](float x) { return x != 0; }));
  }
}

TEST_F(MergedAdaptersTest, WhatDoesNotFitLeavesNoFile) {
  EXPECT_THAT(
      [&] {
        Merge("llama", {{Golden("adapters/gpt2-a"), 1}});
      },
      ThrowsMessage<Error>(HasSubstr("is no matrix of a 'llama' model")));
  EXPECT_THAT(
      [&] {
        Merge("llama", {{Golden("adapters/llama-a"), 1e6f}});
      },
      ThrowsMessage<Error>(HasSubstr("-1000 to 1000")));
  EXPECT_THAT(out_.Files(), ElementsAre());
}

}  // namespace
}  // namespace hearth
