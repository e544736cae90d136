// Which neurons each token of a simulated run lists: recorded, or drawn with planted statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/random_words.h"
#include "planner/simulator/simulator_model.h"
#include "sparsity/access_sequence.h"
#include "sparsity/profile.h"

namespace hearth {

// What one FFN computes for a token.
struct SimList {
  int64_t layer = 0;
  int64_t ffn = 0;               // layer * experts + expert
  std::vector<int32_t> neurons;  // ascending; not empty
};

// One token at a time. Not thread-safe.
class SimAccesses {
 public:
  virtual ~SimAccesses() = default;
  // The lists of the next token, layer by layer; false where there are no more tokens.
  virtual bool Next(std::vector<SimList>& lists) = 0;
};

// The statistics of synthesized models (docs/synth.md), without the model: a neuron fires at its
// rate; what a topic says of it stays as long as the topic does; routers choose sticky experts.
struct SyntheticOptions {
  double active = 0.10;       // mean share of an FFN's neurons that a token lists
  double skew = 0.28;         // share of them with 80% of the activations
  double topic_share = 0.80;  // of what tells tokens apart, for neurons
  double router_topic_share = 0.42;
  double router_bias = 0.82;  // of a router's logits, the part that is the same for all tokens,
                              // over the rest
  double topic_stay = 20;     // mean number of tokens between changes of topic
  int64_t topics = 32;
  uint64_t seed = 0;
};

class SyntheticAccesses final : public SimAccesses {
 public:
  // Endless. `profile`, where not null, gives every neuron's rate in place of `active` and `skew`,
  // and fits the model. Takes 4 bytes per neuron. Throws Error(kInvalidArgument) for options out of
  // range.
  SyntheticAccesses(const SimModel& model, const SyntheticOptions& options,
                    const ModelProfile* profile);

  bool Next(std::vector<SimList>& lists) override;

 private:
  struct Ffn {
    int64_t topic = -1;             // that the chances are of
    std::vector<uint32_t> chances;  // of each neuron to fire, in 2^-32
  };

  void ChooseExperts(int64_t layer, std::vector<int64_t>& experts) const;
  const std::vector<uint32_t>& ChancesOf(int64_t ffn);

  const SimModel model_;
  const SyntheticOptions options_;
  std::vector<std::vector<float>> thresholds_;  // by FFN, or one for all: of standard normals
  std::vector<Ffn> ffns_;
  RandomWords walk_;
  int64_t topic_ = 0;
  int64_t token_ = -1;
};

// A recorded sequence, as often as it lasts. Throws Error(kInvalidArgument) where it is of a model
// of other sizes. Accesses to whole experts go with a model of WholeExperts.
class RecordedAccesses final : public SimAccesses {
 public:
  RecordedAccesses(const SimModel& model, const AccessSequence& sequence);
  bool Next(std::vector<SimList>& lists) override;

 private:
  const AccessSequence& sequence_;
  int64_t batch_ = 0;
};

// The model with each expert as one neuron: read and computed as a whole, without a predictor.
SimModel WholeExperts(const SimModel& model);

}  // namespace hearth
