// Thresholds that let a SiLU model go sparse (P1 §8.4, after CATS): a neuron whose
// |silu(gate)| is at most its layer's threshold is taken for silent.
//
// Every layer gives up the same share of its energy, the sum of (silu(gate) * up)^2 over a text;
// the largest share is sought with which the model foresees another part of the text nearly as well
// as before (prepare/pack/text_parts.h).
// Layers whose activations are spread out thereby keep more of their neurons than others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "measure/evaluate.h"

namespace hearth {

struct SiluCalibration {
  std::vector<float> thresholds;  // per layer
  TextScore before;               // of SampleToScore of the part that they are tuned on
  TextScore after;
  double active = 0;  // share of neurons over their layer's threshold
};

// Called with tokens run and in all. May throw, to cancel.
using SiluProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// What CalibrateSilu charges beside an engine of these options: to be reserved for it
// (EngineOptions::reserved_bytes). Throws as PlanEngine does.
uint64_t SiluCalibrationBytes(const GgufFile& file, const EngineOptions& options);

// `engine` holds a plain SiLU model or streams it, `tokens` are a text without BOS, of which some
// thousand are used. The perplexity over their last part, on which the share is tuned, moves by at
// most `max_change` (0.005: half a percent), up or down; where no share is small enough for that,
// thresholds are 0. How much it moves elsewhere is for the caller to measure. The result does
// not depend on the number of threads. Charges the budget for a second set of activations. Throws
// Error: kInvalidArgument for another activation, a change that is not positive or a text with
// nothing to score; kUnsupported for a packed model; kOutOfBudget.
SiluCalibration CalibrateSilu(Engine& engine, std::span<const TokenId> tokens, double max_change,
                              const SiluProgressFn& progress = {});

}  // namespace hearth
