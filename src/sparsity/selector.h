// Activation selectors: which neurons of an FFN a token computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsity/list_guess.h"
#include "sparsity/mode.h"
#include "tensor/view.h"

namespace hearth {

// The active neurons of one FFN for a group of tokens: either all, or an ascending list per
// token. Lists are valid until the selector is asked again.
class ActiveSets {
 public:
  bool all() const { return all_; }
  // One list per token; only where !all().
  std::span<const std::span<const int32_t>> lists() const { return lists_; }

  void SetAll() {
    all_ = true;
    lists_.clear();
  }
  // Begins anew with `count` empty lists, one per token, for the caller to set. Allocates nothing
  // where there have been as many before.
  std::span<std::span<const int32_t>> ResetLists(size_t count) {
    all_ = false;
    lists_.assign(count, {});
    return lists_;
  }

 private:
  bool all_ = true;
  std::vector<std::span<const int32_t>> lists_;
};

// What a selector may look at: the FFN and its tokens in batch order.
struct SelectionQuery {
  int64_t layer = 0;
  int64_t expert = 0;               // 0 where the layer has one FFN
  std::span<const int64_t> tokens;  // indices of the tokens in the batch, ascending
  FloatView ffn_input;              // normalized input, a row per entry of `tokens`
  FloatView residual;  // what enters the FFN block before its norm, a row per token of the batch
  // Asked before the FFN's turn, with what its inputs are now: nothing is counted.
  bool is_guess = false;
};

class ActivationSelector {
 public:
  virtual ~ActivationSelector() = default;
  // How an FFN of single neurons (a packed file's) is computed. FFNs of three matrices only know
  // active sets.
  virtual FfnMode mode() const { return FfnMode::kPredicted; }
  // An FFN's tokens all have lists or none of them has, however many are asked about at a time.
  virtual void Select(const SelectionQuery& query, ActiveSets& out) = 0;
  // Begins to find out what any of a few tokens will list, beside what was asked last. Nobody may
  // be at the guess before when it begins. Null where all neurons are meant, or where the selector
  // cannot know beforehand.
  virtual ListGuess* BeginGuess(const SelectionQuery& /*query*/) { return nullptr; }
};

// Every neuron: the dense reference, or, as kGated, every gate and then what fires.
class DenseSelector : public ActivationSelector {
 public:
  explicit DenseSelector(FfnMode mode = FfnMode::kDense) : mode_(mode) {}
  FfnMode mode() const override { return mode_; }
  void Select(const SelectionQuery&, ActiveSets& out) override { out.SetAll(); }

 private:
  FfnMode mode_;
};

// Repeats active sets that were recorded before (the oracle of docs/architecture.md, invariant 2):
// entries are indexed by [layer][expert][token of the batch].
class OracleSelector : public ActivationSelector {
 public:
  using NeuronList = std::vector<int32_t>;

  OracleSelector(int64_t num_layers, int64_t num_experts, int64_t num_tokens);
  NeuronList& At(int64_t layer, int64_t expert, int64_t token);
  void Select(const SelectionQuery& query, ActiveSets& out) override;

 private:
  int64_t num_experts_;
  int64_t num_tokens_;
  std::vector<NeuronList> lists_;
};

}  // namespace hearth
