// What a selector lists, cut at a neuron: the first ones of every FFN are computed elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "sparsity/selector.h"

namespace hearth {

// Asks another selector and hands on the neurons from firsts[layer] on, numbered from 0. One thread
// at a time, but for the steps of guesses.
class SplitSelector final : public ActivationSelector {
 public:
  // Told of every answer before it is cut. Lists are valid during the call.
  using AnswerFn = std::function<void(const SelectionQuery& query, const ActiveSets& whole)>;

  // `rest` is the most that is left of an FFN; the selector is asked about at most max_tokens
  // tokens at a time. Charged to `budget` as "activations".
  SplitSelector(Budget& budget, std::vector<int64_t> firsts, int64_t rest, int64_t max_tokens,
                AnswerFn on_answer);
  static uint64_t ChargedBytes(int64_t rest, int64_t max_tokens);

  // Which selector is asked from now on; must live as long.
  void Ask(ActivationSelector& whole) { whole_ = &whole; }

  FfnMode mode() const override { return whole_->mode(); }
  void Select(const SelectionQuery& query, ActiveSets& out) override;
  ListGuess* BeginGuess(const SelectionQuery& query) override;

 private:
  // What is left of a guess, likewise.
  class RestOfGuess final : public ListGuess {
   public:
    Step TakeStep() noexcept override;
    std::span<const int32_t> listed() const noexcept override { return listed_; }

    ListGuess* whole = nullptr;
    int64_t first = 0;
    int32_t* room = nullptr;  // for a list

   private:
    std::span<const int32_t> listed_;
  };

  Buffer memory_;
  const std::vector<int64_t> firsts_;  // by layer
  const int64_t rest_;
  const int64_t max_tokens_;
  const AnswerFn on_answer_;
  ActivationSelector* whole_ = nullptr;
  ActiveSets answer_;
  RestOfGuess guess_;
};

}  // namespace hearth
