// An FFN by single neurons, for one token at a time (P1 §5.4): the neuron-aware operators
// that decoding uses. Gate and up rows of listed neurons are multiplied with the token; down rows
// of those that are active are scaled and added.
//
// Two sections of the team: one over neurons (gate, and up where the gate fires), one over columns
// of the output. Nothing is locked on the way. A neuron's products do not depend on who computes
// them, and down rows are added in ascending order of neurons in every column
// (docs/architecture.md, "One order of addition"), so that the bits are the same for every number
// of threads, and the same whether an inactive neuron was skipped or computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "ops/compute.h"
#include "ops/silent_gates.h"
#include "tensor/op_kinds.h"
#include "tensor/view.h"

namespace hearth {

// The neurons of one FFN; rows of the three views with the same number belong together. An FFN of
// two matrices has no up: its neurons hand act(gate) to down.
struct FfnNeurons {
  RowsView gate;  // [neurons][hidden], and their biases
  RowsView up;    // [neurons][hidden], or nothing
  RowsView down;  // [neurons][hidden]: columns of the down matrix
  FfnActivation activation = FfnActivation::kRelu;
  float threshold = 0;  // kFatRelu and kThresholdedSilu only
  // Null: row i is neuron i. Otherwise slots[i] is the row of neuron i in all three views, which
  // SparsePrefill accepts, and SparseFfn when it computes all neurons, for types with row groups.
  const int32_t* slots = nullptr;

  bool is_gated() const { return !up.empty(); }
};

// Told, by the thread that will read them next, that rows of neurons [begin, begin + count) are
// about to be read. Must not throw; several threads at a time, each neuron once.
using NeuronsArrive = std::function<void(int64_t begin, int64_t count)>;

// Throws Error(kInternal) where rows do not belong together, have a type that no kernel computes,
// are larger than the scratch, or lie anywhere where the operator does not take that.
void CheckNeurons(const FfnNeurons& ffn, int64_t max_hidden, int64_t max_neurons,
                  bool takes_slots = false);

struct NeuronCluster;  // ops/neuron_cluster.h

// What an FFN computed for one token.
struct SparseFfnCounts {
  int64_t gate = 0;    // gate rows multiplied
  int64_t up = 0;      // up rows multiplied
  int64_t active = 0;  // down rows added

  SparseFfnCounts& operator+=(const SparseFfnCounts& other);
  SparseFfnCounts& operator-=(const SparseFfnCounts& other);
};

// Scratch for FFNs of up to `max_neurons` neurons and `max_hidden` columns. One thread at a time.
class SparseFfn {
 public:
  // Charged to `budget` as "activations". Throws Error(kOutOfBudget).
  SparseFfn(Budget& budget, int64_t max_hidden, int64_t max_neurons);
  static uint64_t ChargedBytes(int64_t max_hidden, int64_t max_neurons);

  // Computes what reaches down for a token x of `hidden` floats. `listed` names the neurons to
  // compute, ascending; nothing means all. Where skip_silent, up of neurons whose gate does not
  // fire is left out, and so is down of those whose product is zero; only where CanSkipNeurons.
  SparseFfnCounts Activate(Compute& compute, const FfnNeurons& ffn, const float* x,
                           std::optional<std::span<const int32_t>> listed, bool skip_silent);

  // out[0..hidden) = the sum of the active neurons' down rows; where `adds`, on top of what out
  // has, so that an FFN may be computed range by range.
  void AddDown(Compute& compute, const FfnNeurons& ffn, float* out, bool adds = false) const;

  // Calls visit(neurons), ascending, for runs of the neurons whose up rows the last Activate
  // multiplied.
  template <typename Visit>
  void VisitFired(Visit&& visit) const {
    for (size_t i = 0; i < num_pieces_; ++i) {
      visit(std::span<const int32_t>(fired_ + pieces_[i].begin,
                                     static_cast<size_t>(pieces_[i].fired)));
    }
  }
  // Appends all of them.
  void ListFired(std::vector<int32_t>& neurons) const;

  // Of the last Activate: the neurons whose down rows are to be added, ascending, and their
  // factors.
  std::span<const int32_t> active() const { return {active_, static_cast<size_t>(num_active_)}; }
  std::span<const float> factors() const { return {factors_, static_cast<size_t>(num_active_)}; }

 private:
  // What one range of the neurons' section left in the scratch, from place `begin` on.
  struct Piece {
    int64_t begin;
    int64_t fired;
    int64_t active;
  };
  struct Places;  // where things lie in memory_

  NeuronCluster Cluster(const int32_t* listed, int64_t begin, int64_t end) const;
  void JoinPieces();

  Buffer memory_;
  int64_t max_hidden_;
  int64_t max_neurons_;
  // Views into memory_, an entry per place in the list of candidates unless said otherwise.
  kernels::GroupQ8* x_;  // the token in row groups
  float* gate_;
  float* up_;
  int32_t* fired_;   // neurons, packed to the front of each piece
  int32_t* active_;  // neurons, first packed in each piece, then all together
  float* factors_;   // of active_
  int32_t* all_;     // 0, 1, 2, ...
  int64_t num_active_ = 0;
  std::vector<Piece> pieces_;
  std::atomic<size_t> num_pieces_{0};
};

}  // namespace hearth
