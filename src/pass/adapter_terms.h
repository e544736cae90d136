// Adds the low-rank adapters of each sequence of a pass (docs/architecture.md, "Adapters").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/adapter.h"
#include "pass/math/low_rank.h"
#include "pass/pass_shape.h"
#include "pass/scratch_arena.h"

namespace hearth {

// A product of a layer's matrix; `out` has a row per row of the input.
struct AdaptedProduct {
  AdaptedMatrix which = AdaptedMatrix::kQuery;
  FloatView out;
};

// Knows the adapters of a pass's rows. One thread at a time. Costs a branch per product where no
// sequence has an adapter.
class AdapterTerms {
 public:
  explicit AdapterTerms(Compute& compute) : compute_(compute) {}

  // Its scratch: a row per token, nothing where there are no adapters.
  static FloatView Take(const PassLimits& limits, ScratchLayout& layout) {
    return layout.Take(limits.adapter_ranks > 0 ? limits.max_tokens : 0, limits.adapter_ranks);
  }
  void Lay(const PassLimits& limits, ScratchLayout& layout) { scratch_ = Take(limits, layout); }

  // Begins a pass: later calls add the adapters of its sequences, whose mixes must outlive it.
  void Begin(const PassShape& shape);
  // The adapters of sequences that name none; null: none.
  void SetDefault(const AdapterMix* mix) { default_ = mix; }

  // Whether any row has an adapter.
  bool any() const { return !rounds_.empty(); }

  // Adds what adapters make of x, the input of all `products`, which has all rows of the pass.
  void Add(int64_t layer, FloatView x, std::span<const AdaptedProduct> products) {
    if (any()) AddTerms(layer, x, products);
  }

 private:
  // Neighbouring rows with the same adapter.
  struct Run {
    AdapterUse use;
    int64_t first_row = 0;
    int64_t rows = 0;
  };

  void AddTerms(int64_t layer, FloatView x, std::span<const AdaptedProduct> products);

  Compute& compute_;
  FloatView scratch_;
  const AdapterMix* default_ = nullptr;
  // Round n has the n-th adapter of each sequence that has one. A row has at most one adapter in a
  // round, and its adapters are added in the order of its mix, whatever other rows have.
  std::vector<std::vector<Run>> rounds_;
  std::vector<LowRankTerm> terms_;
};

}  // namespace hearth
