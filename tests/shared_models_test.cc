// The stories models of the shared data: greedy text and perplexity against float64 references.
#include <gtest/gtest.h>

#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/session/session.h"
#include "measure/evaluate.h"

namespace hearth {
namespace {

struct SharedModel {
  const char* name;
  double nll_per_token;
  int64_t tokens;
};

class SharedModelTest : public ::testing::TestWithParam<SharedModel> {
 protected:
  std::unique_ptr<Engine> Load(EngineOptions options) const {
    return Engine::Load(SharedPath("data/models/") + GetParam().name + ".gguf", options);
  }
};

TEST_P(SharedModelTest, GreedyTextIsTheReference) {
  HEARTH_NEED_SHARED("data/models");
  const std::string expected =
      ReadWholeFile(SharedPath("data/models/") + GetParam().name + ".n200.txt");
  for (const std::string& isa : UsableIsaNames()) {
    for (const KvCodec kv : {KvCodec::kF16, KvCodec::kF32}) {
      EngineOptions options;
      options.isa = isa;
      options.kv_codec = kv;
      const auto engine = Load(options);
      GenerateOptions generate;
      generate.max_tokens = 200;
      generate.sampling.temperature = 0;
      const TokenId bos = engine->model().tokenizer().special().bos;
      EXPECT_EQ(Session(*engine).Generate({&bos, 1}, generate).text, expected)
          << isa << " " << InfoOf(kv).name;
    }
  }
}

TEST_P(SharedModelTest, PerplexityIsTheReference) {
  HEARTH_NEED_SHARED("data/models");
  EngineOptions options;
  options.context = 512;
  options.kv_codec = KvCodec::kF32;
  const auto engine = Load(options);
  const std::string text = ReadWholeFile(SharedPath("data/text/tinystories_sample.txt"));
  const EvalResult result = EvaluateText(*engine, engine->model().tokenizer().Encode(text));
  EXPECT_EQ(result.tokens, GetParam().tokens);
  EXPECT_NEAR(result.nll_per_token, GetParam().nll_per_token, 0.0005);
}

INSTANTIATE_TEST_SUITE_P(Stories, SharedModelTest,
                         ::testing::Values(SharedModel{"stories260K", 1.83710, 1882},
                                           SharedModel{"stories3M", 2.11835, 981}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace hearth
