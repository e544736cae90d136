// How long a model takes for a token (P2 §5.3, equations 1, 2, 6 to 11), with the speeds of
// a measured machine. Two things that the paper leaves out are in it: single tokens are bound by
// memory, so that computing is bytes over the bandwidth at which a kernel takes weights in; and
// reading costs processor time (docs/decisions/0012-cost-model.md). Reads are timed in
// read_seconds.h; ffn_seconds.h replays those of single neurons, cost_model.cc those of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/load/engine_plan.h"
#include "measure/work_estimate.h"
#include "pipeline/streamed_ffns.h"
#include "plan/execution_plan.h"
#include "planner/cost/miss_replay.h"
#include "planner/doctor/hardware.h"

namespace hearth {

// How what is not in memory is read.
enum class IoStrategy : uint8_t {
  kNone,    // everything is in memory
  kWhole,   // a neuron at a time (P2 §4.4)
  kHalves,  // its gate, and the rest where that fires (P2 §4.3)
  kPieces,  // a neuron at a time, in pieces of kNeuronPieceBytes
  kHalvesInPieces,
  kSequential,  // everything, in order
  kExperts,     // of a mixture that is not packed: the experts that a token is routed to
};
const char* IoStrategyName(IoStrategy strategy);
constexpr bool ReadsHalves(IoStrategy strategy) {
  return strategy == IoStrategy::kHalves || strategy == IoStrategy::kHalvesInPieces;
}
constexpr bool ReadsPieces(IoStrategy strategy) {
  return strategy == IoStrategy::kPieces || strategy == IoStrategy::kHalvesInPieces;
}

// KV pages in use while a token's time is told: of a short context.
inline constexpr int64_t kPlannedKvPages = 1;

struct CostInputs {
  const EnginePlan& plan;  // described (DescribeWeights)
  const HardwareProfile& hardware;
  std::span<const int> cores;  // that compute, one thread on each
  // The one of `cores` that only reads single neurons, and computes once all are there. Nothing:
  // whichever thread has time reads.
  std::optional<int> io_core = {};
  int64_t context = 0;  // tokens in the KV cache
  // Of single neurons: rows that are multiplied per token. Predictors where the mode has them.
  FfnActivity activity;
  IoStrategy strategy = IoStrategy::kNone;
  const MissReplay* replay = nullptr;  // where a token reads what it alone needs
  std::optional<uint32_t> merge_gap_bytes = kDefaultMergeGapBytes;  // of single neurons' reads

  int threads() const { return static_cast<int>(cores.size()); }
};

// Per-token times, and what they are bound by. attention + predictor + FFN by FFN the larger of
// computing and reading, over the tokens of the replay.
struct TokenCost {
  PlannedTime time;
  double bytes_read = 0;      // per token
  double beside_ms = 0;       // of computing, beside which reading goes on
  double device_wait_ms = 0;  // for a device, beside the processor's own work (AddDevice)

  double tok_s() const { return time.token_ms > 0 ? 1000 / time.token_ms : 0; }
  // "flash" where reading takes longer than what is computed beside it, "device" where the
  // processor waits for most of what a device does, "memory" else; "compute" is what prompts are
  // bound by.
  const char* bound() const;
};

// Every neuron of every FFN that a token is routed to, without predictors; zeros where FFNs are no
// single neurons. `load` is described.
FfnActivity AllNeurons(const LoadPlan& load);

TokenCost CostOfToken(const CostInputs& inputs);

// Tokens per second of a prompt of `tokens`, everything computed; weights are read from memory, and
// what is not pinned in sequential runs from storage meanwhile, once per pass. Float weights count
// with the speed of float32 in registers, which no prompt reaches.
double PromptTokensPerSecond(const CostInputs& inputs, int64_t tokens);

}  // namespace hearth
