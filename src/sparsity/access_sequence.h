// What a model asked of a cache of its neurons or experts, in order: a recorded trace as keys,
// ready to be replayed (sparsity/cache_replay.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/block_reader.h"

namespace hearth {

enum class AccessUnit : uint8_t { kNeurons, kExperts };

// A batch is what is asked for at once, distinct keys: the active neurons of one FFN, the routed
// experts of one layer. A pass is one run through the layers: of a token, or of a prompt whose
// tokens take a layer together.
class AccessSequence {
 public:
  AccessUnit unit = AccessUnit::kNeurons;
  std::string model_name;  // as the trace says; may be empty
  // Keys are (layer * num_experts + expert) * num_neurons + neuron. num_experts is 1 where a layer
  // has one FFN, num_neurons is 1 where the unit is an expert.
  int64_t num_layers = 0;
  int64_t num_experts = 1;
  int64_t num_neurons = 1;

  int64_t num_keys() const { return num_layers * num_experts * num_neurons; }
  int64_t num_accesses() const { return static_cast<int64_t>(keys_.size()); }
  int64_t num_batches() const { return static_cast<int64_t>(batch_ends_.size()); }
  int64_t num_passes() const { return num_passes_; }

  // All accesses, and where each batch ends in them.
  std::span<const int32_t> keys() const { return keys_; }
  std::span<const size_t> batch_ends() const { return batch_ends_; }
  std::span<const int32_t> batch(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const size_t begin = at == 0 ? 0 : batch_ends_[at - 1];
    return std::span(keys_).subspan(begin, batch_ends_[at] - begin);
  }
  bool ends_pass(int64_t i) const { return ends_pass_[static_cast<size_t>(i)] != 0; }

  // For who makes one. A batch or pass without accesses leaves no trace.
  void Append(int32_t key) { keys_.push_back(key); }
  void EndBatch();
  void EndPass();

 private:
  std::vector<int32_t> keys_;
  std::vector<size_t> batch_ends_;
  std::vector<uint8_t> ends_pass_;  // per batch
  int64_t num_passes_ = 0;
};

// Calls get how far the file was read; total does not change.
using ReadProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// Reads a neuron trace (docs/formats/trace.md) or an expert trace (docs/formats/route_trace.md),
// whichever the first bytes say. Four bytes of memory per access. Experts that are dense inside
// (SiLU) are single keys. Throws Error(kCorrupt), Error(kIo), and Error(kUnsupported) for a model
// whose every token needs every neuron, and for more than NeuronCache takes.
AccessSequence ReadAccessSequence(std::unique_ptr<BlockReader> file,
                                  const ReadProgressFn& progress = nullptr);

}  // namespace hearth
