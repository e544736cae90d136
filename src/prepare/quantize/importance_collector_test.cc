#include "prepare/quantize/importance_collector.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/test_data.h"
#include "prepare/quantize/recipe.h"

namespace hearth {
namespace {

std::map<std::string, const InputSums*> ByName(const std::vector<InputSums>& all) {
  std::map<std::string, const InputSums*> map;
  for (const InputSums& sums : all) {
    for (const std::string& name : sums.names) EXPECT_TRUE(map.emplace(name, &sums).second) << name;
  }
  return map;
}

CollectedImportance Collect(const std::string& golden, int64_t context = 16) {
  const auto engine = Engine::Load(SourcePath("tests/goldens/" + golden + ".gguf"),
                                   {.threads = 2, .context = context});
  std::vector<TokenId> text(40);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<TokenId>(i % 7 + 20);
  return CollectImportance(*engine, text, {});
}

TEST(ImportanceCollector, EveryMatrixHasAnEntryOfItsShape) {
  for (const char* golden : {"llama", "mixtral", "qwen2", "gemma3", "smollm3", "opt"}) {
    if (!std::filesystem::exists(SourcePath(std::string("tests/goldens/") + golden + ".gguf"))) {
      ADD_FAILURE() << golden;
      continue;
    }
    const CollectedImportance collected = Collect(golden);
    const auto by_name = ByName(collected.sums);
    const GgufFile file =
        GgufFile::Open(SourcePath(std::string("tests/goldens/") + golden + ".gguf"));
    for (const GgufTensor& tensor : file.tensors()) {
      if (!IsQuantizable(tensor)) continue;
      if (tensor.name == "token_embd.weight" && file.FindTensorOrNull("output.weight")) continue;
      ASSERT_TRUE(by_name.count(tensor.name)) << golden << ' ' << tensor.name;
      const InputSums& sums = *by_name.at(tensor.name);
      EXPECT_EQ(sums.columns, tensor.ne[0]) << tensor.name;
      EXPECT_EQ(sums.squares.size(), tensor.ne[0] * tensor.ne[2]) << tensor.name;
      EXPECT_GT(std::accumulate(sums.squares.begin(), sums.squares.end(), 0.0), 0.0) << tensor.name;
    }
  }
}

TEST(ImportanceCollector, TokensAreCountedOnceAndExpertsByThemselves) {
  const CollectedImportance dense = Collect("llama");
  for (const InputSums& sums : dense.sums)
    EXPECT_THAT(sums.tokens, testing::ElementsAre(dense.tokens));
  const CollectedImportance mixture = Collect("mixtral");
  const auto by_name = ByName(mixture.sums);
  const InputSums& up = *by_name.at("blk.0.ffn_up_exps.weight");
  const uint64_t routed = std::accumulate(up.tokens.begin(), up.tokens.end(), uint64_t{0});
  EXPECT_EQ(routed % mixture.tokens, 0u);
  EXPECT_EQ(routed / mixture.tokens, 2u) << "experts of a token";
}

// Windows are sequences of their own: the second half of a text that repeats is as the first.
TEST(ImportanceCollector, SumsAreThoseOfTheWindows) {
  const auto engine =
      Engine::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 2, .context = 16});
  const bool has_bos = engine->model().tokenizer().special().bos >= 0;
  const std::vector<TokenId> once(has_bos ? 15 : 16, 33);
  std::vector<TokenId> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  const CollectedImportance a = CollectImportance(*engine, once, {});
  const CollectedImportance b = CollectImportance(*engine, twice, {});
  EXPECT_EQ(b.tokens, 2 * a.tokens);
  ASSERT_EQ(a.sums.size(), b.sums.size());
  for (size_t i = 0; i < a.sums.size(); ++i) {
    for (size_t c = 0; c < a.sums[i].squares.size(); ++c) {
      EXPECT_NEAR(b.sums[i].squares[c], 2 * a.sums[i].squares[c], 1e-9 * b.sums[i].squares[c]);
    }
  }
}

// What down multiplies, seen by somebody else.
TEST(ImportanceCollector, SquaresAreThoseOfTheInputs) {
  class ColumnWatcher : public PassObserver {
   public:
    void OnFfnActivation(int64_t layer, int64_t, std::span<const int64_t>,
                         FloatView activation) override {
      if (layer != 1) return;
      for (int64_t r = 0; r < activation.rows; ++r) {
        sum += double{activation.row(r)[5]} * double{activation.row(r)[5]};
      }
    }
    double sum = 0;
  };
  const auto engine =
      Engine::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 2, .context = 64});
  std::vector<TokenId> text(30, 25);
  const CollectedImportance collected = CollectImportance(*engine, text, {});
  ColumnWatcher seen;
  DenseSelector dense;
  KvSequence kv(engine->kv_pool());
  const TokenId bos = engine->model().tokenizer().special().bos;
  if (bos >= 0) text.insert(text.begin(), bos);
  const BatchSequence sequence{&kv, text};
  engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, dense, &seen);
  EXPECT_NEAR(ByName(collected.sums).at("blk.1.ffn_down.weight")->squares[5], seen.sum,
              1e-6 * seen.sum);
  EXPECT_GT(seen.sum, 0);
}

TEST(ImportanceCollector, StopsWhereItIsAsked) {
  const auto engine =
      Engine::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 1, .context = 16});
  const std::atomic<bool> stop{true};
  const std::vector<TokenId> text(10, 30);
  EXPECT_THROW(CollectImportance(*engine, text, {.cancel = &stop, .progress = {}}), Error);
}

}  // namespace
}  // namespace hearth
