// An FFN by single neurons for a few tokens that are decoded together, one of each of some
// sequences (P1 §8.2).
//
// Every token lists neurons of its own, or all. A neuron that several of them list comes from
// memory once: token after token meets some neurons while a core's cache holds them. A token's
// result is, bit for bit, what SparseFfn gives it alone: its products
// depend on nothing but the row and the token, and down rows are added in ascending order of
// neurons (docs/architecture.md, "One order of addition").
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "ops/compute.h"
#include "ops/neuron_cluster.h"
#include "ops/silent_gates.h"
#include "ops/sparse_ffn.h"
#include "tensor/view.h"

namespace hearth {

struct SparseBatchShape {
  int64_t max_tokens = 0;  // at most SparseBatch::kMostTokens
  int64_t max_hidden = 0;
  int64_t max_neurons = 0;
};

class SparseBatch {
 public:
  static constexpr int64_t kMostTokens = 32;
  // Lists of neurons, ascending, of every token; without any entry all of every token.
  using Lists = std::span<const std::span<const int32_t>>;

  // Some tokens, what each asks for, and where the result goes.
  struct Tokens {
    FloatView x;  // [tokens][hidden]
    Lists listed;
    bool skip_silent = false;  // as SparseFfn: neurons that add nothing to a token are left out
    FloatView out;             // [tokens][hidden]
  };

  // Charged to `budget` as "activations". Throws Error(kOutOfBudget).
  SparseBatch(Budget& budget, const SparseBatchShape& shape);
  static uint64_t ChargedBytes(const SparseBatchShape& shape);
  int64_t max_tokens() const { return shape_.max_tokens; }

  // tokens.out = the FFN of tokens.x, which is in memory; with `adds`, of further neurons of the
  // same FFN, what they add to it. One thread at a time.
  SparseFfnCounts Run(Compute& compute, const FfnNeurons& ffn, const Tokens& tokens,
                      bool adds = false);

  // The parts of Run, for an FFN whose rows come to memory in the course of it. Begin and ScanGates
  // are one thread's, in this order; the others may be any thread's after them, each neuron's
  // MultiplyGates before its Finish, and its Finish before its AddDown.

  // Takes tokens and lists, of an FFN of `neurons` neurons. Down rows are added to tokens.out,
  // which the caller clears. Its x and out must live as long as the other parts are called.
  void Begin(Compute& compute, const FfnNeurons& ffn, int64_t neurons, const Tokens& tokens);
  // Multiplies all gates that are listed, and takes neurons whose gate fires for no token off the
  // list. `gates` has a row per neuron of the FFN.
  void ScanGates(Compute& compute, const RowsView& gates);
  // What some token lists, ascending; after ScanGates what fires.
  std::span<const int32_t> neurons() const { return {neurons_, static_cast<size_t>(num_neurons_)}; }
  // Appends, once all neurons are finished, those whose up rows were multiplied with a token;
  // ascending.
  void ListFired(int64_t token, std::vector<int32_t>& neurons) const;
  // For how many tokens each of neurons() is.
  std::span<const uint8_t> tokens_of() const {
    return {num_tokens_, static_cast<size_t>(num_neurons_)};
  }
  // Entries of all lists that Begin took.
  int64_t num_listed() const { return num_listed_; }

  // Some neurons of the list and their rows in the views of an FfnNeurons.
  struct Cluster {
    const int32_t* neurons;
    const int32_t* rows;
    int64_t count;
  };
  void MultiplyGates(const kernels::KernelTable& table, const RowsView& gates,
                     const Cluster& cluster) noexcept;
  // Of neurons whose gates have been multiplied: takes them off the lists of tokens for which they
  // do not fire. Packs the places in the cluster of those that some token still lists to `fired`,
  // in order, and returns how many those are; the others are finished.
  int64_t TakeSilent(const Cluster& cluster, int32_t* fired) noexcept;
  // What reaches down. `knows_gates`: they have been multiplied.
  ClusterCounts Finish(const kernels::KernelTable& table, const FfnNeurons& ffn,
                       const Cluster& cluster, bool knows_gates) noexcept;
  // Adds down rows to the columns of groups [begin_group, end_group) of all tokens. Calls for one
  // group come one after the other, with ascending neurons.
  void AddDown(const kernels::KernelTable& table, const RowsView& down, const Cluster& cluster,
               int64_t begin_group, int64_t end_group) noexcept;

 private:
  struct Places;   // where things lie in memory_
  struct OfToken;  // some neurons that a token lists

  float* values_of(int32_t neuron) const { return values_ + neuron * shape_.max_tokens; }
  // Whether any token is left that fires the neuron, whose gates have been multiplied.
  bool LeaveFiring(int32_t neuron) noexcept;
  void Unite(int64_t neurons, Lists listed);
  void PackNeurons();
  // visit(token, its neurons) for all tokens, some neurons of the cluster at a time.
  template <class Visit>
  void ForEachToken(const Cluster& cluster, Visit&& visit) const noexcept;

  SparseBatchShape shape_;
  Buffer memory_;
  // Views into memory_.
  kernels::GroupQ8* x_groups_;  // [tokens][groups]
  uint32_t* tokens_of_;         // per neuron of the FFN: those that list it, or fire it, as bits
  float* values_;               // [neurons][max_tokens]: gates, then what reaches down
  int32_t* neurons_;
  uint8_t* num_tokens_;  // of neurons_, an entry each
  // Of the last Begin.
  FloatView x_, out_;
  std::array<NeuronInput, kMostTokens> inputs_;
  int64_t num_neurons_ = 0;
  int64_t max_neuron_ = 0;  // neurons of the FFN
  int64_t num_listed_ = 0;
  bool skips_silent_ = false;
  SilentGates silent_{};
};

}  // namespace hearth
