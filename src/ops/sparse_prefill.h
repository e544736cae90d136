// An FFN by single neurons for many tokens together: the gated operator of prefill.
//
// Each token of a prompt fires few neurons, though together they fire nearly all. So gates are
// multiplied densely, a tile of neurons at a time; up and down of a neuron are computed only for
// the tokens that fire it, with its weights unpacked once: exact, and fewer operations than any
// dense product. (Dense FFNs of single neurons are computed the same way, with every token firing
// every neuron.) Down rows are added to a token in ascending order of neurons, as SparseFfn does;
// gates of row groups are added up in the order of weight tiles, so that results agree with
// SparseFfn within rounding. Those of rows of floats agree bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "ops/sparse_ffn.h"
#include "tensor/view.h"

namespace hearth {

// What a model, a batch and a machine ask of the scratch.
struct SparsePrefillShape {
  int64_t max_tokens = 0;
  int64_t max_hidden = 0;
  int64_t max_neurons = 0;
  int threads = 1;
  // Neurons of a block, a multiple of kernels::kRowsOfSums: which of them fire is kept for one
  // block, whose down rows are added before the next one begins.
  int64_t block_neurons = 4096;
};

// One thread at a time.
class SparsePrefill {
 public:
  // Charged to `budget` as "activations". Throws Error(kOutOfBudget).
  SparsePrefill(Budget& budget, const SparsePrefillShape& shape);
  static uint64_t ChargedBytes(const SparsePrefillShape& shape);

  // Tells which neurons tokens first_token, first_token + 1, ... compute wherever only_listed says
  // so, until they are told others. Lists ascend. Throws Error(kInternal) for what has no room.
  void SetLists(Compute& compute, int64_t first_token,
                std::span<const std::span<const int32_t>> lists);
  // Appends what SetLists told of a token, ascending.
  void ListListed(int64_t token, std::vector<int32_t>& neurons) const;

  // Which neurons are computed.
  struct Choice {
    bool only_listed = false;  // what SetLists was told, of every token
    // Up and down of those that add nothing are left out; only where CanSkipNeurons.
    bool skip_silent = true;
  };

  // Is called, on the calling thread, after each block of neurons.
  using BlockFn = std::function<void()>;

  // out [tokens][hidden] = the FFN of input.x(). Results do not depend on whether silent neurons
  // are skipped nor on the number of threads, nor a token's on the others.
  SparseFfnCounts Run(Compute& compute, const FfnNeurons& ffn, MatMulInput& input,
                      const Choice& choice, FloatView out, const BlockFn& after_block = {}) {
    return RunRange(compute, ffn, input, {.after_block = after_block}, choice, out);
  }

  // The same range by range, for an FFN that is not in memory as a whole: `ffn` has the neurons
  // from range.first on, a multiple of kernels::kRowsOfBatch; ranges come in ascending order. The
  // bits are those of Run. Lists number neurons of the whole FFN; `out` is complete after the
  // last range and must stay as it is between them.
  struct Range {
    int64_t first = 0;
    bool is_first = true;
    bool is_last = true;
    const NeuronsArrive* arrive = nullptr;  // of neurons of the range; may be null
    BlockFn after_block = {};               // may be empty
  };
  SparseFfnCounts RunRange(Compute& compute, const FfnNeurons& ffn, MatMulInput& input,
                           const Range& range, const Choice& choice, FloatView out);

  // While a BlockFn is called: appends, of a token and the block's neurons, those whose up rows
  // were multiplied, and those whose product is not zero with that product; ascending, numbered in
  // the whole FFN. Blocks of a token come in ascending order of neurons.
  void ListFired(int64_t token, std::vector<int32_t>& neurons) const;
  void ListActive(int64_t token, std::vector<int32_t>& neurons, std::vector<float>& factors) const;

 private:
  struct Places;     // where things lie in memory_
  struct Entries;    // who fires of a batch of neurons
  struct Workspace;  // what one thread has for its neurons
  struct Job;        // a RunRange in progress
  void QuantizeGroups(Compute& compute, FloatView x);
  void MultiplyGates(const Job& job, const Workspace& work, int64_t first, int64_t count) const;
  void AddBiases(const Job& job, const Workspace& work, int64_t first, int64_t count) const;
  int64_t ListEntries(const Job& job, const float* gates_of, int64_t first, int64_t count,
                      const Entries& list);
  void MultiplyUp(const Job& job, const Workspace& work, int64_t first, const Entries& list) const;
  void MultiplyUpOfFloats(const Job& job, const Workspace& work, const uint64_t* fired_of,
                          const kernels::RowList& rows, const Entries& list) const;
  void ActivateBatch(Job& job, const Workspace& work, int64_t first, int64_t count,
                     const Entries& list);
  void Activate(Job& job, const Workspace& work, int64_t first, int64_t end);
  void RunBlock(Compute& compute, Job& job, FloatView out);
  void AddGroup(const Job& job, int64_t group, int64_t first, int64_t last, FloatView out);
  void AddGroupOfFloats(const Job& job, int64_t group, int64_t first, int64_t last, FloatView out);
  void AddDown(Compute& compute, const Job& job, FloatView out);

  Workspace WorkspaceOf(int worker);
  uint64_t* FiredOf(const Job& job, int64_t first) const;

  SparsePrefillShape shape_;
  Buffer memory_;
  int64_t words_;        // of a token's list
  kernels::GroupQ8* x_;  // [tokens][groups]
  uint64_t* listed_;     // [tokens][words_]: what SetLists was told, as bits
  float* sums_;          // [groups][tokens][512]
  int32_t* all_;         // 0, 1, 2, ...: numbers, and rows where they lie in order
  // Of a block of neurons.
  uint64_t* fired_;  // [batches][tokens]: whose up was multiplied, as bits
  // Who is active, an entry per token and neuron: list after list of the neurons that are added to
  // sums together, token after token, each list with room for all.
  float* factors_;   // what reaches down
  int32_t* places_;  // the neuron's number in its list
  int32_t* begins_;  // [lists][tokens + 1]: the first entry of a token
  std::byte* workspaces_;
  // The last one: its neurons in the whole FFN.
  int64_t num_tokens_ = 0;
  int64_t first_neuron_ = 0;
  int64_t num_neurons_ = 0;
  int64_t rows_of_sums_ = 0;
};

}  // namespace hearth
