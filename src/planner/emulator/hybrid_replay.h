// What an emulated machine would do with a model that is not here: plans how the model is shared
// between host and device, and replays a prompt and tokens after it in virtual time (P1 §8).
//
// Lists are drawn with the statistics of synthesized models
// (planner/simulator/simulator_accesses.h), the same for every system. Rates are those of data
// sheets: times are best cases, and ratios of times are what to look at.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/emulator/emulated_model.h"
#include "planner/emulator/hybrid_clock.h"
#include "planner/emulator/upload_pipeline.h"

namespace hearth {

struct EmulationOptions {
  EmulatedSystem system = EmulatedSystem::kPlaced;
  EmulatedBudgets budgets;  // context: what prompt and decoded tokens come to
  double active = 0.1;      // mean share of an FFN's neurons that a token lists
  double skew = 0.28;       // share of them with 80% of the activations
  int64_t prompt_tokens = 64;
  int64_t decode_tokens = 32;  // replayed
  uint64_t seed = 0;
};

struct Emulation {
  EmulatedPlacement placement;
  double prompt_seconds = 0;
  UploadTimes uploads;       // the prompt, were all it needs multiplied on the device
  double token_seconds = 0;  // mean of the decoded ones
  EmulatedWork work;         // of a decoded token, on average

  double decode_tok_s() const { return 1 / token_seconds; }
  // Tokens per second of an answer of so many tokens, with its prompt: P1's "end-to-end".
  double AnswerTokensPerSecond(int64_t tokens) const {
    return static_cast<double>(tokens) /
           (prompt_seconds + static_cast<double>(tokens) * token_seconds);
  }
  // Of what decoding multiplies, the device's share (P1 Figure 12).
  double device_load() const { return work.device_bytes / (work.device_bytes + work.host_bytes); }
  double device_ffn_load() const {
    return work.device_ffn_bytes / (work.device_ffn_bytes + work.host_ffn_bytes);
  }
};

// Throws as PlaceEmulated, and Error(kInvalidArgument) for shares out of range and counts below 1.
Emulation Emulate(const EmulatedMachine& machine, const EmulatedModel& model,
                  const ModelShape& shape, const EmulationOptions& options);

}  // namespace hearth
