#include "pass/adapter_terms.h"

namespace hearth {

void AdapterTerms::Begin(const PassShape& shape) {
  rounds_.clear();
  int64_t first_row = 0;
  for (const BatchSequence& sequence : shape.sequences) {
    const auto rows = static_cast<int64_t>(sequence.tokens.size());
    const AdapterMix* const mix = sequence.adapters != nullptr ? sequence.adapters : default_;
    if (mix != nullptr) {
      const std::span<const AdapterUse> uses = mix->uses();
      if (uses.size() > rounds_.size()) rounds_.resize(uses.size());
      for (size_t i = 0; i < uses.size(); ++i) rounds_[i].push_back({uses[i], first_row, rows});
    }
    first_row += rows;
  }
}

void AdapterTerms::AddTerms(int64_t layer, FloatView x, std::span<const AdaptedProduct> products) {
  for (const std::vector<Run>& round : rounds_) {
    terms_.clear();
    for (const Run& run : round) {
      int64_t place = 0;
      for (const AdaptedProduct& product : products) {
        const LowRankPair& pair = run.use.adapter->Of(layer, product.which);
        if (pair.rank == 0) continue;
        terms_.push_back({.a = pair.a,
                          .b = pair.b,
                          .rank = pair.rank,
                          .columns = pair.rows,
                          .out = product.out,
                          .first_row = run.first_row,
                          .rows = run.rows,
                          .scale = static_cast<float>(pair.scale * double{run.use.weight}),
                          .place = place});
        place += pair.rank;
      }
    }
    if (!terms_.empty()) AddLowRank(compute_, x, terms_, scratch_);
  }
}

}  // namespace hearth
