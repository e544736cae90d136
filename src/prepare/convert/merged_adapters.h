// Low-rank adapters that become part of the weights of a model that is converted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "engine/load/adapters.h"
#include "format/gguf.h"

namespace hearth {

// Immutable after it was made.
class MergedAdapters {
 public:
  MergedAdapters() = default;  // none
  // Loads the adapters of the model in `base` into memory charged to `budget`. Throws as
  // PlanAdapter and LoadedAdapter, and Error(kInvalidArgument) for a weight that no AdapterSet
  // takes.
  MergedAdapters(const GgufFile& base, std::span<const AdapterOption> adapters, Budget& budget);

  bool Change(const std::string& tensor) const { return terms_.contains(tensor); }
  // The number of tensors that they change.
  size_t num_changed() const { return terms_.size(); }

  // Adds weight * scale * B A to numbers of a tensor, the first of which has index `first` in it.
  // Sums of an adapter are in double precision.
  void AddTo(const GgufTensor& tensor, uint64_t first, std::span<float> numbers) const;

 private:
  // An adapter's part of a tensor: rows [first_row, first_row + pair->rows).
  struct Term {
    const LowRankPair* pair = nullptr;
    uint64_t first_row = 0;
    double factor = 1;
  };

  AdapterSet adapters_;
  std::map<std::string, std::vector<Term>, std::less<>> terms_;  // by the tensor's name
};

}  // namespace hearth
