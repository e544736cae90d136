// The logits of every kind of model here are, bit for bit, those of the commit that recorded them:
// goldens, synthesized and packed models, in every mode and for every instruction set. A change
// that is not meant to change results must leave this file's hashes alone; one that is records them
// anew:
//   HEARTH_RECORD_HASHES=1 build/release/bin/logit_hashes_test
// Instruction sets that this machine lacks keep what another one recorded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/checksum.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "ops/compute.h"
#include "pass/test_passes.h"
#include "prepare/pack/pack.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using nlohmann::ordered_json;

constexpr size_t kTokens = 24;

std::string HashesPath() { return SourcePath("tests/goldens/logit_hashes.json"); }

// Tokens of no meaning, the same for every model.
std::vector<TokenId> SomeTokens(int64_t vocab_size) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<TokenId>((i * 7919 + 13) % static_cast<size_t>(vocab_size)));
  }
  return tokens;
}

// Of the logits after every token: a prompt of 16 tokens, then one at a time.
std::string HashOf(const std::string& path, std::optional<FfnMode> mode, const std::string& isa) {
  const auto engine = Engine::Load(path, {.threads = 2, .isa = isa, .context = 64, .mode = mode});
  const std::vector<TokenId> tokens = SomeTokens(engine->model().spec().vocab_size);
  KvSequence kv(engine->kv_pool());
  std::vector<float> all;
  constexpr size_t kPrompt = 16;
  for (size_t begin = 0; begin < kTokens;) {
    const size_t count = begin == 0 ? kPrompt : 1;
    const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
    engine->pass().Run(ShapeOf(sequence),
                       begin == 0 ? engine->prefill_selector() : engine->selector());
    const FloatView logits = engine->pass().Logits(0, static_cast<int64_t>(count));
    for (int64_t r = 0; r < logits.rows; ++r) {
      all.insert(all.end(), logits.row(r), logits.row(r) + logits.cols);
    }
    begin += count;
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(Checksum(std::as_bytes(std::span(all)))));
  return text;
}

// Every model, by a name that stays, in the modes that it runs in.
std::vector<std::pair<std::string, std::string>> Models(const TestFolder& folder) {
  std::vector<std::pair<std::string, std::string>> models;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("tests/goldens"))) {
    if (entry.path().extension() != ".gguf") continue;
    models.emplace_back("golden " + entry.path().stem().string(), entry.path());
  }
  const std::string stories = SourcePath("models/hearth-stories-5m.gguf");
  models.emplace_back("stories", stories);
  PackModel(GgufFile::Open(stories), {.quant = DType::kQ4_0, .threads = 2}, folder.Path("stories"));
  models.emplace_back("stories packed", folder.Path("stories"));
  SynthesizeSparseModel(folder.Path("sparse"));
  models.emplace_back("sparse packed", folder.Path("sparse"));
  for (const DType quant : {DType::kF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const std::string name = std::string("experts ") + NameOf(quant);
    const ModelShape shape = ParseShape(ShapeText(64, 96, kExpertShape), name);
    SynthesizeModel(shape, {.quant = quant, .threads = 2}, folder.Path(name));
    models.emplace_back(name, folder.Path(name));
  }
  std::sort(models.begin(), models.end());
  return models;
}

std::vector<std::optional<FfnMode>> ModesOf(const std::string& name) {
  if (name == "stories packed") return {FfnMode::kDense, FfnMode::kGated};
  if (name == "sparse packed") return {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted};
  return {std::nullopt};
}

TEST(LogitHashesTest, AreThoseThatWereRecorded) {
  const bool records = std::getenv("HEARTH_RECORD_HASHES") != nullptr;
  ordered_json recorded = ordered_json::object();
  if (std::ifstream file(HashesPath()); file) recorded = ordered_json::parse(file);
  const TestFolder folder("logit_hashes");
  for (const auto& [name, path] : Models(folder)) {
    for (const std::optional<FfnMode> mode : ModesOf(name)) {
      const std::string key = mode ? name + ", " + FfnModeName(*mode) : name;
      for (const std::string& isa : UsableIsaNames()) {
        const std::string hash = HashOf(path, mode, isa);
        if (records) {
          recorded[key][isa] = hash;
        } else if (recorded.contains(key) && recorded[key].contains(isa)) {
          EXPECT_EQ(hash, recorded[key][isa]) << key << ", " << isa;
        } else {
          EXPECT_TRUE(recorded.contains(key)) << key << " was never recorded";
          std::printf("%s: nothing was recorded for %s\n", key.c_str(), isa.c_str());
        }
      }
    }
  }
  if (records) std::ofstream(HashesPath()) << recorded.dump(1) << "\n";
}

}  // namespace
}  // namespace hearth
