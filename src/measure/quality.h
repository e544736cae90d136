// How good a sparse way of computing FFNs is: what fires, what is computed, and what is missed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pass/transformer_pass.h"

namespace hearth {

// Shares over all tokens, layers and experts that a meter saw. Nothing where it does not apply.
struct Quality {
  std::optional<double> active;          // neurons whose product is not zero; nothing for SiLU
  std::optional<double> gate;            // neurons whose gate fires; likewise
  double computed = 0;                   // neurons whose down is computed (or read)
  std::optional<double> listed;          // neurons that a predictor names
  std::optional<double> recall;          // of the |product| of active neurons, what is listed
  std::optional<double> precision;       // of the listed neurons, those that are active
  std::optional<double> top1_agreement;  // tokens whose likeliest successor is dense's
};

// Watches passes and adds up. FFNs of matrices count as computed whole.
class QualityMeter : public PassObserver {
 public:
  explicit QualityMeter(const ModelSpec& spec) : spec_(spec) {}

  void OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView gate,
                   FloatView up) override;
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView activation) override;
  void OnFfnNeurons(const NeuronObservation& observed) override;

  // Whether the likeliest token is the one that dense finds.
  void CountTop1(bool agrees);

  Quality Result() const;

 private:
  const ModelSpec& spec_;
  int64_t neurons_ = 0;
  int64_t active_ = 0;
  int64_t fired_ = 0;
  int64_t computed_ = 0;
  // Of FFNs for which a selector named neurons.
  int64_t neurons_of_lists_ = 0;
  int64_t listed_ = 0;
  int64_t listed_and_active_ = 0;
  double mass_ = 0;
  double listed_mass_ = 0;
  int64_t top1_ = 0;
  int64_t top1_agree_ = 0;
};

}  // namespace hearth
