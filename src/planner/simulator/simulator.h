// What a device that is not here would do with a model that is not here: a discrete-event replay
// of decoding, token by token and layer by layer, with the strategies of this engine or of
// PowerInfer-2 (docs/simulator.md; P2 sections 4.2 to 4.4).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cache/cache_policy.h"
#include "planner/simulator/device_model.h"
#include "planner/simulator/simulator_accesses.h"
#include "planner/simulator/simulator_ffn.h"
#include "planner/simulator/simulator_model.h"

namespace hearth {

struct SimOptions {
  SimStrategy strategy;  // of the system that the model was made for
  // Nothing: kDefaultCachePolicy, P2's two queues, or the window of kLlmFlash.
  std::optional<CachePolicyKind> policy;
  // For neurons of FFNs, of kMmap for pages of FFNs; nothing: all are in memory.
  std::optional<uint64_t> cache_bytes;
  int64_t tokens = 256;        // measured
  int64_t warmup_tokens = 64;  // before them
  // Of Hearth: the cache begins with the neurons that fire most, as engines fill theirs.
  bool warm_start = true;
  // Of the neurons that are listed, those whose gate fires: P2 §4.3's 80%.
  double gate_fires = 0.8;
  uint64_t seed = 0;                                          // of which gates fire
  std::function<void(int64_t done, int64_t total)> progress;  // in tokens
  const std::atomic<bool>* cancel = nullptr;                  // true stops: Error(kCancelled)
};

struct SimToken {
  double seconds = 0;
  int64_t listed = 0;
  int64_t missed = 0;
};

struct SimResult {
  std::vector<SimToken> tokens;
  uint64_t cache_bytes = 0;  // as used: never more than everything
  double bytes_per_token = 0;
  double reads_per_token = 0;
  double dense_seconds = 0;    // per token: attention, predictors, output
  double compute_seconds = 0;  // per token: FFNs, were their computing spread evenly
  double wait_seconds = 0;     // per token: what FFNs take beyond that

  double mean_seconds() const;
  double tok_s() const { return 1 / mean_seconds(); }
  // p in [0, 1]: the least time that this share of tokens does not pass.
  double QuantileSeconds(double p) const;
  double listed_per_token() const;
  double mean_miss_rate() const;  // mean over tokens of missed / listed
  double QuantileMissRate(double p) const;

  // Tokens of another text with the same cache; what is per token is of both then.
  void Add(const SimResult& other);
};

// What is left of `memory_bytes` for cache_bytes. Throws Error(kOutOfBudget) where what must be in
// memory leaves nothing.
uint64_t SimCacheBytes(const SimModel& model, SimPipeline pipeline, uint64_t memory_bytes);
// Bytes of all FFNs, as the pipeline holds them: the most that cache_bytes can use.
uint64_t SimFfnBytes(const SimModel& model, SimPipeline pipeline);

// The device's flash is idle at first. Deterministic. Throws Error(kInvalidArgument) for options
// that make no sense and where `accesses` end before a token is measured.
SimResult Simulate(const SimDevice& device, const SimModel& model, const SimOptions& options,
                   SimAccesses& accesses);

}  // namespace hearth
