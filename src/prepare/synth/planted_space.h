// The directions of a model with planted sparsity (docs/synth.md): where its tokens lie, and the
// few directions per layer that its neurons look at.
//
//   embedding of a token = sqrt(hidden) * a * u + b * z,  a^2 + b^2 = 1
//   z = sqrt(s) * z(topic) + sqrt(1 - s) * z(token)
//
// u is one unit direction; all z are normal with variance 1 in every component; s is the share of a
// topic in what tells its tokens from others. Where there are routers, the first quarter of the
// components has a share of its own, and routers look at nothing else: the experts of a text change
// faster than its neurons.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "measure/topic_walk.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/weight_generator.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Energy of an embedding along u (a^2). Half: what quantization of a neuron's row does along u,
// where all tokens agree, and across it, where they differ, weighs alike.
inline constexpr double kCommonShare = 0.5;

// Of an up row with its gate row (drelu): the higher, the better one linear function tells both.
inline constexpr float kUpCorrelation = 0.9f;
inline constexpr float kUpOwnPart = 0.43588989f;  // sqrt(1 - kUpCorrelation^2)

// The topics of a planted model, and the tokens that its walk says.
TopicMap PlantedTopics(const ModelShape& shape, uint64_t seed);

// Orthonormal rows; row 0 is u, the others are a layer's directions: first those that neurons look
// at, then those that only predictors do.
struct PlantedBasis {
  int64_t hidden = 0;
  std::vector<float> rows;  // [1 + directions][hidden]

  const float* u() const { return rows.data(); }
  const float* Direction(int64_t i) const { return rows.data() + (i + 1) * hidden; }
};

struct TopicShares {
  double mean = 0;  // over all components
  double router = 0;
  bool has_routers = false;
};

class PlantedSpace {
 public:
  // Topics of all tokens are those of `topics`. directions < hidden, per layer. hidden >= 4.
  PlantedSpace(const TopicMap& topics, int64_t hidden, int64_t directions,
               const TopicShares& shares);

  // Thread-safe; the last few layers asked for are kept.
  std::shared_ptr<const PlantedBasis> BasisOf(int64_t layer) const;

  // out[hidden].
  void Embedding(TokenId token, float* out) const;

  // out[hidden]: a row that yields `mean` plus, over the tokens, a normal number of this standard
  // deviation. Rows of different (layer, expert) are independent.
  void RouterRow(int64_t layer, int64_t experts, int64_t expert, double mean, double std,
                 float* out) const;

  // sqrt(s) * z(topic) in the layer's directions: [directions][topics].
  std::vector<float> TopicsIn(const PlantedBasis& basis) const;

  const TopicMap& topics() const { return topics_; }
  int64_t hidden() const { return hidden_; }
  int64_t directions() const { return directions_; }
  double topic_share() const { return topic_share_; }  // mean

  // n normal numbers of variance 1; those of different (purpose, index) are independent.
  enum class Purpose : uint64_t { kCommon, kTopic, kToken, kBasis, kSample, kRouter, kRouterBias };
  void Normals(Purpose purpose, uint64_t index, int64_t n, float* out) const;

 private:
  PlantedBasis MakeBasis(int64_t layer) const;
  int64_t RouterComponents() const { return hidden_ / 4; }

  const TopicMap topics_;
  const int64_t hidden_;
  const int64_t directions_;
  double topic_share_ = 0;
  const WeightGenerator generator_;
  std::vector<float> u_;             // [hidden]
  std::vector<float> of_token_;      // [hidden], sqrt(1 - s)
  std::vector<float> topic_points_;  // [topics][hidden], sqrt(s) * z
  mutable std::mutex mutex_;
  // Most recent last; guarded by mutex_.
  mutable std::vector<std::pair<int64_t, std::shared_ptr<const PlantedBasis>>> bases_;
};

// Sum of products, in a fixed order that vectors can follow.
double DotOf(const float* a, const float* b, int64_t n);
// Above it lie `rate` of the values, as far as that many (>= 1) can tell. Reorders them.
float CutOf(std::vector<float>& values, double rate);
// y[i] += scale * x[i].
void AddScaled(float scale, const float* x, int64_t n, float* y);

}  // namespace hearth
