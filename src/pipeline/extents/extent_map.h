// The FFNs of a model that is not packed, cut into what is read and kept as one: extents, runs of
// rows of one matrix of one FFN.
//
// Extents are numbered layer by layer, as many numbers in each; within a layer expert by expert,
// and there gate, up, down, by rows. The number is the key of the cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "model/weights.h"
#include "plan/extent_plan.h"
#include "tensor/view.h"

namespace hearth {

// A matrix of the FFNs of one layer: as the file has it, and as it is multiplied.
struct ExtentMatrix {
  size_t part = 0;      // of a split set
  uint64_t offset = 0;  // in that file, of the first expert's
  int64_t experts = 1;
  std::vector<int32_t> held;   // of these, ascending, those that are ever asked for; empty: all
  int64_t rows_of_expert = 0;  // from one expert's to the next one's; 0: those of view
  DType stored = DType::kF32;
  WeightView view;  // of one expert, without data: what it is in memory

  int64_t num_held() const { return held.empty() ? experts : std::ssize(held); }
  bool Holds(int64_t expert) const {
    return held.empty() ||
           std::binary_search(held.begin(), held.end(), static_cast<int32_t>(expert));
  }
  uint64_t stored_row_bytes() const { return RowBytes(stored, static_cast<size_t>(view.cols)); }
};

struct Extent {
  const ExtentMatrix* matrix = nullptr;
  int64_t expert = 0;
  int64_t first_row = 0;  // begins a tile
  int64_t rows = 0;

  uint64_t stored_bytes() const { return static_cast<uint64_t>(rows) * matrix->stored_row_bytes(); }
  uint64_t file_offset() const {
    const int64_t of_expert =
        matrix->rows_of_expert > 0 ? matrix->rows_of_expert : matrix->view.rows;
    return matrix->offset +
           static_cast<uint64_t>(expert * of_expert + first_row) * matrix->stored_row_bytes();
  }
  // The rows, where they lie at `data`.
  WeightView View(const std::byte* data) const;
};

// Immutable.
class ExtentMap {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{4} << 20;
  // Reads begin and end on multiples of this, which all devices' direct reads accept.
  static constexpr uint64_t kReadAlignment = 4096;

  using Layer = std::array<ExtentMatrix, kNumFfnMatrices>;

  ExtentMap() = default;
  // Extents of at most `most_bytes` in memory, or of one tile. The matrices of a layer have as many
  // experts each. Throws Error(kUnsupported) where there are too many to number.
  explicit ExtentMap(std::vector<Layer> layers, uint64_t most_bytes = kMostBytes);

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  // Of the layer that has most, and of one; 1 where a layer has one FFN.
  int64_t num_experts() const { return num_experts_; }
  int64_t ExpertsOf(int64_t layer) const { return MainMatrix(layer).experts; }
  // Whether an FFN is read from here: others lie elsewhere.
  bool Holds(int64_t layer, int64_t expert) const {
    return CountOfFfn(layer) > 0 && MainMatrix(layer).Holds(expert);
  }
  int64_t num_extents() const { return num_extents_; }
  int64_t keys_of_layer() const { return num_experts_ * keys_of_expert_; }
  int64_t num_keys() const { return num_layers() * keys_of_layer(); }
  ExtentShape shape() const;

  const ExtentMatrix& Matrix(int64_t layer, FfnMatrix which) const {
    return layers_[static_cast<size_t>(layer)][static_cast<size_t>(which)];
  }
  // The first matrix that a layer has.
  const ExtentMatrix& MainMatrix(int64_t layer) const {
    return MainMatrix(layers_[static_cast<size_t>(layer)]);
  }
  // Extents of a matrix, and of all three of an FFN.
  int64_t CountOf(int64_t layer, FfnMatrix which) const {
    return counts_[static_cast<size_t>(layer)][static_cast<size_t>(which)];
  }
  int64_t CountOfFfn(int64_t layer) const;
  // The number, within the layer, of the first extent of a matrix.
  int32_t FirstOf(int64_t layer, int64_t expert, FfnMatrix which) const;
  int32_t FirstKey(int64_t layer) const { return static_cast<int32_t>(layer * keys_of_layer()); }
  // `key` is an extent's.
  Extent At(int32_t key) const;

 private:
  static const ExtentMatrix& MainMatrix(const Layer& layer);

  std::vector<Layer> layers_;
  std::vector<std::array<int64_t, kNumFfnMatrices>> counts_;
  std::vector<std::array<int64_t, kNumFfnMatrices>> rows_;  // of an extent
  int64_t num_experts_ = 1;
  int64_t keys_of_expert_ = 0;
  int64_t num_extents_ = 0;
};

}  // namespace hearth
