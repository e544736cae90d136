// Which neurons of an FFN fire for a token, by their gates alone: for FFNs whose gates are all in
// memory while up and down are not.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "ops/compute.h"
#include "ops/neuron_cluster.h"
#include "ops/silent_gates.h"
#include "tensor/view.h"

namespace hearth {

// Scratch for FFNs of up to `max_neurons`. One thread at a time.
class GateScan {
 public:
  // Charged to `budget` as "activations". Throws Error(kOutOfBudget).
  GateScan(Budget& budget, int64_t max_neurons);
  static uint64_t ChargedBytes(int64_t max_neurons);

  // Multiplies the gates of the listed neurons (ascending; nothing means all) with the token, on
  // all threads. `silent`: gates that do not fire; null where all do. The products are those of
  // SparseFfn, bit for bit.
  void Run(Compute& compute, const RowsView& gates, const NeuronInput& input,
           std::optional<std::span<const int32_t>> listed, const SilentGates* silent);

  // Of the last Run: the neurons that fire, ascending, and their gates.
  std::span<const int32_t> fired() const { return {fired_, static_cast<size_t>(num_fired_)}; }
  std::span<const float> gates() const { return {gates_, static_cast<size_t>(num_fired_)}; }

 private:
  // What a range of the section left in the scratch, from place `begin` on.
  struct Piece {
    int64_t begin;
    int64_t fired;
  };
  struct Places;  // where things lie in memory_

  Buffer memory_;
  // Views into memory_, an entry per neuron.
  float* gates_;    // first packed in each piece, then all together
  int32_t* fired_;  // likewise
  int32_t* all_;    // 0, 1, 2, ...
  int64_t num_fired_ = 0;
  std::vector<Piece> pieces_;
  std::atomic<size_t> num_pieces_{0};
};

}  // namespace hearth
