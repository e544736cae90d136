// Which experts planted routers choose when the model runs, beside choices that were recorded from
// a real model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/test_data.h"
#include "engine/engine.h"
#include "measure/topic_walk.h"
#include "prepare/synth/synth.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

// [token][layer]: experts.
using Choices = std::vector<std::vector<std::set<int64_t>>>;

// turn,phase,step,layer,slot,expert,...
Choices ReadTrace(const std::string& path) {
  std::ifstream file(path);
  Choices choices;
  std::map<std::tuple<int, int, int>, size_t> tokens;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#' || line.starts_with("turn")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    int turn = 0, phase = 0, step = 0, layer = 0, slot = 0, expert = 0;
    fields >> turn >> phase >> step >> layer >> slot >> expert;
    const auto token = tokens.emplace(std::tuple(turn, phase, step), choices.size());
    if (token.second) choices.emplace_back();
    auto& layers = choices[token.first->second];
    if (layers.size() <= static_cast<size_t>(layer)) layers.resize(static_cast<size_t>(layer) + 1);
    layers[static_cast<size_t>(layer)].insert(expert);
  }
  // Some tokens lack their last layers.
  size_t layers = 0;
  for (const auto& token : choices) layers = std::max(layers, token.size());
  for (auto& token : choices) token.resize(layers);
  return choices;
}

class ChoiceRecorder : public PassObserver {
 public:
  ChoiceRecorder(size_t tokens, size_t layers)
      : choices(tokens, std::vector<std::set<int64_t>>(layers)) {}

  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView,
                  FloatView) override {
    for (const int64_t token : tokens) {
      choices[static_cast<size_t>(token)][static_cast<size_t>(layer)].insert(expert);
    }
  }

  Choices choices;
};

// Share of accesses that an LRU cache finds that holds `share` of all experts of all layers.
double LruHits(const Choices& choices, double share, size_t experts) {
  const size_t layers = choices.front().size();
  const auto capacity = static_cast<size_t>(share * static_cast<double>(experts * layers));
  std::list<size_t> order;
  std::vector<std::list<size_t>::iterator> place(experts * layers, order.end());
  double hits = 0, all = 0;
  for (const auto& token : choices) {
    for (size_t layer = 0; layer < layers; ++layer) {
      for (const int64_t expert : token[layer]) {
        const size_t entry = layer * experts + static_cast<size_t>(expert);
        ++all;
        if (place[entry] != order.end()) {
          ++hits;
          order.erase(place[entry]);
        }
        order.push_front(entry);
        place[entry] = order.begin();
        if (order.size() > capacity) {
          place[order.back()] = order.end();
          order.pop_back();
        }
      }
    }
  }
  return hits / all;
}

// Share of a token's experts that the token before chose too.
double KeptShare(const Choices& choices) {
  double kept = 0, all = 0;
  for (size_t t = 1; t < choices.size(); ++t) {
    for (size_t layer = 0; layer < choices[t].size(); ++layer) {
      for (const int64_t expert : choices[t][layer]) {
        ++all;
        kept += static_cast<double>(choices[t - 1][layer].count(expert));
      }
    }
  }
  return kept / all;
}

Choices RunPlanted(const PlantedOptions& planted, size_t tokens, FfnActivation activation) {
  ModelShape shape = ParseShape(
      R"({"arch": "qwen3moe", "hidden_size": 768, "intermediate_size": 32, "num_layers": 12,
          "num_heads": 4, "head_dim": 64, "vocab_size": 4000, "num_experts": 128,
          "num_experts_per_token": 6})",
      "experts");
  shape.activation = activation;
  const std::string path =
      fs::temp_directory_path() / ("hearth_planted_router_" + std::to_string(getpid()));
  SynthesizeModel(shape, {.threads = 2, .planted = planted}, path);
  const auto engine =
      Engine::Load(path, {.memory_bytes = uint64_t{4} << 30, .threads = 2, .context = 512});
  fs::remove(path);
  const auto map = TopicMap::FromMetadata(engine->model().metadata(), shape.vocab_size);
  const std::vector<TokenId> text = TopicWalk(*map).Take(static_cast<int64_t>(tokens));
  ChoiceRecorder recorder(tokens, static_cast<size_t>(shape.num_layers));
  KvSequence kv(engine->kv_pool());
  const BatchSequence sequence{&kv, text};
  engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->selector(), &recorder);
  return recorder.choices;
}

TEST(PlantedRouterTest, ChoosesLikeARealModel) {
  const std::string trace = "data/traces/qwen3-30b-a3b.route.csv";
  HEARTH_NEED_SHARED(trace);
  const Choices real = ReadTrace(SharedPath(trace));
  ASSERT_EQ(real.size(), 156u);
  for (const FfnActivation activation : {FfnActivation::kSilu, FfnActivation::kRelu}) {
    const Choices planted = RunPlanted({}, real.size(), activation);
    for (const double share : {0.1, 0.2, 0.3, 0.5}) {
      EXPECT_NEAR(LruHits(planted, share, 128), LruHits(real, share, 128), 0.06) << share;
    }
    EXPECT_NEAR(KeptShare(planted), KeptShare(real), 0.1);
  }
}

// Fitted to the trace.
TEST(PlantedRouterTest, ChoosesLikeATrace) {
  const std::string trace = "data/traces/qwen3-30b-a3b.route.csv";
  HEARTH_NEED_SHARED(trace);
  const Choices real = ReadTrace(SharedPath(trace));
  const RecordedFigures like = RecordedFrom(ReadAccessSequence(OpenFileReader(SharedPath(trace))));
  const Choices planted = RunPlanted({.like = like}, real.size(), FfnActivation::kSilu);
  for (const double share : {0.1, 0.2, 0.3, 0.5}) {
    EXPECT_NEAR(LruHits(planted, share, 128), LruHits(real, share, 128), 0.06) << share;
  }
}

TEST(PlantedRouterTest, LocalityMakesChoicesStick) {
  const double high =
      KeptShare(RunPlanted({.locality = Locality::kHigh}, 128, FfnActivation::kSilu));
  const double medium = KeptShare(RunPlanted({}, 128, FfnActivation::kSilu));
  const double low = KeptShare(RunPlanted({.locality = Locality::kLow}, 128, FfnActivation::kSilu));
  EXPECT_GT(high, medium + 0.05);
  EXPECT_GT(medium, low + 0.05);
}

}  // namespace
}  // namespace hearth
