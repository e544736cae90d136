#include "prepare/synth/planted_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "measure/topic_walk.h"
#include "prepare/synth/planted_options.h"
#include "prepare/synth/planted_space.h"
#include "prepare/synth/weight_generator.h"

namespace hearth {
namespace {

constexpr int64_t kFitNeurons = 512;
constexpr int64_t kFitLayers = 6;             // of routers
constexpr int64_t kCalibrationTokens = 1024;  // by which thresholds are set; topics in turn
constexpr int64_t kLeastTokens = 64;
// What rounding, norms and earlier layers add, halfway up a model, where the variance among tokens
// is 1. Along u it is the same for all tokens and moves a neuron's rate, across u it differs
// between them; both weigh alike (kCommonShare).
constexpr double kDisturbance = 0.07;
constexpr double kMostTopicShare = 0.995;
constexpr double kMostRouterBias = 4;
// Skew and topic share in turn; each moves the other's figure little.
constexpr int kRounds = 3;
constexpr int kSteps = 8;

std::vector<float> Normals(uint64_t stream, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  WeightGenerator(0).Fill(DType::kF32, {0, 1}, stream, 0,
                          std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<int64_t> WalkTopics(const ModelShape& shape, int64_t tokens) {
  const TopicMap map = PlantedTopics(shape, 0);
  TopicWalk walk(map);
  std::vector<int64_t> topics;
  for (const TokenId token : walk.Take(tokens)) topics.push_back(map.TopicOf(token));
  return topics;
}

struct Mix {
  explicit Mix(double topic_share)
      : of_topic(static_cast<float>(std::sqrt(topic_share))),
        of_calibration(static_cast<float>(std::sqrt(1 - topic_share + kDisturbance))),
        of_token(static_cast<float>(std::sqrt(1 - topic_share + kDisturbance / 2))) {}
  float of_topic;
  float of_calibration;  // tokens by which thresholds are set: all that is added differs
  float of_token;
};

// Normal numbers of `rows` neurons or experts over tokens by which thresholds are set, then over
// the walk: a part of each topic, a part of each token.
class Draws {
 public:
  Draws(uint64_t stream, int64_t rows, int64_t topics, int64_t tokens)
      : topics_(topics),
        tokens_(kCalibrationTokens + tokens),
        of_topic_(Normals(stream, rows * topics)),
        of_token_(Normals(stream + 1, rows * tokens_)),
        of_row_(Normals(stream + 2, rows)) {}

  float Calibration(int64_t row, int64_t token, const Mix& mix) const {
    return mix.of_topic * OfTopic(row, token % topics_) + mix.of_calibration * OfToken(row, token);
  }
  float Walk(int64_t row, int64_t topic, int64_t token, const Mix& mix) const {
    return mix.of_topic * OfTopic(row, topic) +
           mix.of_token * OfToken(row, kCalibrationTokens + token) +
           kRowShift * of_row_[static_cast<size_t>(row)];
  }

 private:
  static constexpr float kRowShift = 0.18708287f;  // sqrt(kDisturbance / 2)

  float OfTopic(int64_t row, int64_t topic) const {
    return of_topic_[static_cast<size_t>(row * topics_ + topic)];
  }
  float OfToken(int64_t row, int64_t token) const {
    return of_token_[static_cast<size_t>(row * tokens_ + token)];
  }

  int64_t topics_, tokens_;
  std::vector<float> of_topic_, of_token_, of_row_;
};

// One layer of neurons over the walk: the construction of planted_ffn.h without its directions.
class NeuronDraws {
 public:
  NeuronDraws(const ModelShape& shape, const FitRequest& request, int64_t tokens)
      : wanted_(request.wanted),
        gate_rate_(request.gate),
        is_drelu_(shape.activation == FfnActivation::kDRelu),
        walk_(WalkTopics(shape, tokens)),
        gate_(0, kFitNeurons, PlantedTopics(shape, 0).topics, tokens),
        up_(3, kFitNeurons, PlantedTopics(shape, 0).topics, tokens) {}

  AccessFigures Figures(double skew, double topic_share) const {
    const Mix mix(topic_share);
    const std::vector<double> active = PowerLawRates(kFitNeurons, wanted_.active, skew);
    const std::vector<double> gates = PlantedGateRates(active, gate_rate_, skew);
    std::vector<std::vector<int32_t>> lists(walk_.size());
    for (int64_t j = 0; j < kFitNeurons; ++j) {
      const auto place = static_cast<size_t>(j);
      const Cuts cuts = CutsOf(j, gates[place], active[place], mix);
      for (size_t t = 0; t < walk_.size(); ++t) {
        const auto token = static_cast<int64_t>(t);
        const float gate = gate_.Walk(j, walk_[t], token, mix);
        if (gate <= cuts.gate) continue;
        if (is_drelu_ && UpOf(gate, up_.Walk(j, walk_[t], token, mix)) <= cuts.up) continue;
        lists[t].push_back(static_cast<int32_t>(j));
      }
    }
    return FiguresOf(AsSequence(lists));
  }

 private:
  struct Cuts {
    float gate = 0;
    float up = 0;
  };

  static float UpOf(float gate, float own) { return kUpCorrelation * gate + kUpOwnPart * own; }

  Cuts CutsOf(int64_t neuron, double gate_rate, double active_rate, const Mix& mix) const {
    std::vector<float> gates(static_cast<size_t>(kCalibrationTokens));
    for (int64_t n = 0; n < kCalibrationTokens; ++n) {
      gates[static_cast<size_t>(n)] = gate_.Calibration(neuron, n, mix);
    }
    std::vector<float> sorted = gates;
    Cuts cuts{.gate = CutOf(sorted, gate_rate)};
    if (!is_drelu_) return cuts;
    sorted.clear();
    for (int64_t n = 0; n < kCalibrationTokens; ++n) {
      const float gate = gates[static_cast<size_t>(n)];
      if (gate > cuts.gate) sorted.push_back(UpOf(gate, up_.Calibration(neuron, n, mix)));
    }
    if (sorted.empty()) sorted.push_back(cuts.gate);
    cuts.up = CutOf(sorted, active_rate / gate_rate);
    return cuts;
  }

  static AccessSequence AsSequence(const std::vector<std::vector<int32_t>>& lists) {
    AccessSequence sequence;
    sequence.num_layers = 1;
    sequence.num_neurons = kFitNeurons;
    for (const auto& list : lists) {
      for (const int32_t neuron : list) sequence.Append(neuron);
      sequence.EndBatch();
      sequence.EndPass();
    }
    return sequence;
  }

  const AccessFigures wanted_;
  const double gate_rate_;
  const bool is_drelu_;
  const std::vector<int64_t> walk_;  // topics
  const Draws gate_, up_;
};

// Some layers of routers over the walk.
class RouterDraws {
 public:
  RouterDraws(const ModelShape& shape, int64_t tokens)
      : experts_(shape.num_experts),
        used_(static_cast<size_t>(shape.num_experts_per_token)),
        walk_(WalkTopics(shape, tokens)),
        logits_(6, kFitLayers * experts_, PlantedTopics(shape, 0).topics, tokens),
        biases_(Normals(9, kFitLayers * experts_)) {}

  AccessFigures Figures(double bias, double topic_share) const {
    const Mix mix(topic_share);
    AccessSequence sequence;
    sequence.unit = AccessUnit::kExperts;
    sequence.num_layers = kFitLayers;
    sequence.num_experts = experts_;
    std::vector<float> logits(static_cast<size_t>(experts_));
    std::vector<int32_t> order(logits.size());
    for (size_t t = 0; t < walk_.size(); ++t) {
      for (int64_t layer = 0; layer < kFitLayers; ++layer) {
        const int64_t first = layer * experts_;
        for (int64_t e = 0; e < experts_; ++e) {
          logits[static_cast<size_t>(e)] =
              static_cast<float>(bias) * biases_[static_cast<size_t>(first + e)] +
              logits_.Walk(first + e, walk_[t], static_cast<int64_t>(t), mix);
        }
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used_),
                          order.end(), [&](int32_t a, int32_t b) {
                            return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
                          });
        for (size_t i = 0; i < used_; ++i) {
          sequence.Append(static_cast<int32_t>(first) + order[i]);
        }
        sequence.EndBatch();
      }
      sequence.EndPass();
    }
    return FiguresOf(sequence);
  }

 private:
  const int64_t experts_;
  const size_t used_;
  const std::vector<int64_t> walk_;
  const Draws logits_;
  const std::vector<float> biases_;
};

// Where is_low turns from true to false between low and high.
double Bisect(double low, double high, const std::function<bool(double)>& is_low) {
  for (int step = 0; step < kSteps; ++step) {
    const double middle = (low + high) / 2;
    (is_low(middle) ? low : high) = middle;
  }
  return (low + high) / 2;
}

using FiguresFn = std::function<AccessFigures(double skew, double topic_share)>;

// `first` is where the hot share is least. The hot share grows from `first` to `last`; what is
// found grows with the topic share.
PlantedFit Fit(const AccessFigures& wanted, double first, double last, const FiguresFn& figures) {
  PlantedFit fit{.skew = (first + last) / 2, .topic_share = 0.5};
  for (int round = 0; round < kRounds; ++round) {
    fit.skew = Bisect(first, last, [&](double skew) {
      return figures(skew, fit.topic_share).hot_share < wanted.hot_share;
    });
    fit.topic_share = Bisect(0, kMostTopicShare, [&](double topic_share) {
      return figures(fit.skew, topic_share).found < wanted.found;
    });
  }
  fit.reached = figures(fit.skew, fit.topic_share);
  return fit;
}

int64_t TokensOf(const FitRequest& request) {
  return std::clamp(request.tokens, kLeastTokens, kMostFitTokens);
}

}  // namespace

PlantedFit FitNeurons(const ModelShape& shape, const FitRequest& request) {
  const NeuronDraws draws(shape, request, TokensOf(request));
  const SkewRange range = SkewRangeOf(request.wanted.active);
  return Fit(request.wanted, range.least, range.greatest,
             [&](double skew, double topic_share) { return draws.Figures(skew, topic_share); });
}

PlantedFit FitRouter(const ModelShape& shape, const FitRequest& request) {
  const RouterDraws draws(shape, TokensOf(request));
  return Fit(request.wanted, kMostRouterBias, 0,
             [&](double bias, double topic_share) { return draws.Figures(bias, topic_share); });
}

}  // namespace hearth
