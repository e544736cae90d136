// How a packed model that does not fit into its budget is held: which of its FFNs' neurons stay in
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/budget.h"
#include "engine/load/model.h"
#include "format/gguf.h"
#include "pipeline/streamed_ffns.h"
#include "plan/stream_plan.h"
#include "sparsity/mode.h"
#include "storage/async/async_reader.h"
#include "storage/async/emulated_file.h"

namespace hearth {

// What a user may ask of streaming.
struct StreamingOptions {
  StreamOptions pipeline;
  AsyncFileOptions io;
  // Instead: the file is served from memory beside the budget, as this device would.
  std::optional<EmulatedDevice> device;
  // Of the memory for neurons, the share of those that are pinned; the rest is the cache's.
  // Nothing: half, and none for LLM in a Flash, which pins none.
  std::optional<double> pinned_share;
  // Whether `gated` keeps all gates in memory where they fit, instead of in slots with the rest of
  // their neurons. Nothing: where so few neurons fire that reading those one by one is faster than
  // reading all in order (docs/decisions/0010-gates-in-memory.md).
  std::optional<bool> holds_gates;
};

// The file at `path`, to be read as the options say. Throws as OpenAsyncFile and OpenEmulatedFile.
std::unique_ptr<AsyncFile> OpenStreamedFile(const std::string& path,
                                            const StreamingOptions& options);

// Whether what the next layer lists can be guessed: its predictor is asked early, and after a
// router nobody knows whose.
bool CanLookAhead(const ModelSpec& spec, FfnMode mode);

// Bytes that rounding takes at most: each buffer of streaming to whole pages, and the place where
// KV pages begin.
inline constexpr uint64_t kRoundingBytes = uint64_t{64} << 10;

// Takes the bundles out of a plan that holds them, so that they are streamed instead.
struct StreamedBundles {
  BundleLayout layout;
  StreamShape shape;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_experts = 1;
  std::vector<uint64_t> layer_offsets;
  int64_t first_neuron = 0;               // of every FFN; those before it are on a device
  GatePlace gates = GatePlace::kInSlots;  // wanted: in memory where gates decide who is computed
  bool can_look_ahead = false;

  // Throws Error(kUnsupported) for a split set, and for layers of different shapes.
  // holds_gates: see StreamingOptions.
  static StreamedBundles TakeFrom(LoadPlan& plan, const GgufFile& file, FfnMode mode,
                                  std::optional<bool> holds_gates);

  // Bytes that streaming takes besides slots and gates, at most.
  uint64_t OverheadBytes(const StreamingOptions& options) const;
  // The least that streaming takes in all.
  uint64_t SmallestBytes(const StreamingOptions& options) const;
  // What fits into `bytes`. Throws Error(kOutOfBudget) below SmallestBytes.
  StreamPlan PlanFor(uint64_t bytes, const StreamingOptions& options) const;
  // Adds what it will charge to a ledger; KV pages that are lent replace its entry "kv cache".
  void AddTo(std::map<std::string, uint64_t>& ledger, const StreamPlan& plan,
             const StreamingOptions& options) const;
  // Opens the file again for asynchronous reads.
  std::unique_ptr<StreamedFfns> Open(const std::string& path, Budget& budget,
                                     const StreamPlan& plan, const StreamingOptions& options) const;

 private:
  // What is asked for, without what this model cannot do.
  StreamOptions Possible(const StreamOptions& options) const;
};

}  // namespace hearth
