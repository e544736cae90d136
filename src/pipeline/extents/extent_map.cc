#include "pipeline/extents/extent_map.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/rounding.h"
#include "cache/neuron_cache.h"

namespace hearth {
namespace {

// Slots follow each other, so all begin on cache lines.
constexpr uint64_t kCacheLine = 64;

}  // namespace

WeightView Extent::View(const std::byte* data) const {
  WeightView view = matrix->view;
  view.data = data;
  view.rows = rows;
  return view;
}

ExtentMap::ExtentMap(std::vector<Layer> layers, uint64_t most_bytes) : layers_(std::move(layers)) {
  for (const Layer& layer : layers_) {
    std::array<int64_t, kNumFfnMatrices> counts{}, rows{};
    int64_t keys = 0;
    for (size_t m = 0; m < kNumFfnMatrices; ++m) {
      const WeightView& view = layer[m].view;
      if (view.rows == 0) continue;
      // As many as it takes, of equal size.
      const auto bytes = static_cast<int64_t>(view.expert_bytes());
      const int64_t tiles = DivideUp(view.rows, TileLayout::kRows);
      const int64_t wanted = std::min(tiles, DivideUp(bytes, static_cast<int64_t>(most_bytes)));
      const int64_t tiles_of_extent = DivideUp(tiles, std::max<int64_t>(wanted, 1));
      rows[m] = tiles_of_extent * TileLayout::kRows;
      counts[m] = DivideUp(view.rows, rows[m]);
      keys += counts[m];
    }
    counts_.push_back(counts);
    rows_.push_back(rows);
    keys_of_expert_ = std::max(keys_of_expert_, keys);
    num_experts_ = std::max(num_experts_, MainMatrix(layer).experts);
    num_extents_ += keys * MainMatrix(layer).num_held();
  }
  if (num_keys() > NeuronCache::kMaxKeys) {
    throw Error(ErrorCode::kUnsupported, "extents",
                "more than " + std::to_string(NeuronCache::kMaxKeys) + " of them");
  }
}

const ExtentMatrix& ExtentMap::MainMatrix(const Layer& layer) {
  const auto found = std::find_if(layer.begin(), layer.end(),
                                  [](const ExtentMatrix& matrix) { return matrix.view.rows > 0; });
  return found == layer.end() ? layer.front() : *found;
}

ExtentShape ExtentMap::shape() const {
  ExtentShape shape = {.num_extents = num_extents_};
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t m = 0; m < kNumFfnMatrices; ++m) {
      const ExtentMatrix& matrix = layers_[l][m];
      const Extent largest = {&matrix, 0, 0, std::min(rows_[l][m], matrix.view.rows)};
      shape.slot_bytes = std::max<uint64_t>(
          shape.slot_bytes, RoundUp<uint64_t>(largest.View(nullptr).expert_bytes(), kCacheLine));
      // With what an aligned range has before and after it.
      shape.read_bytes = std::max(shape.read_bytes,
                                  RoundUp(largest.stored_bytes(), kReadAlignment) + kReadAlignment);
    }
  }
  return shape;
}

int64_t ExtentMap::CountOfFfn(int64_t layer) const {
  const auto& counts = counts_[static_cast<size_t>(layer)];
  return counts[0] + counts[1] + counts[2];
}

int32_t ExtentMap::FirstOf(int64_t layer, int64_t expert, FfnMatrix which) const {
  const auto& counts = counts_[static_cast<size_t>(layer)];
  int64_t first = expert * keys_of_expert_;
  for (size_t m = 0; m < static_cast<size_t>(which); ++m) first += counts[m];
  return static_cast<int32_t>(first);
}

Extent ExtentMap::At(int32_t key) const {
  const auto layer = static_cast<size_t>(key / keys_of_layer());
  const int64_t in_layer = key % keys_of_layer();
  int64_t index = in_layer % keys_of_expert_;
  size_t m = 0;
  while (m + 1 < kNumFfnMatrices && index >= counts_[layer][m]) index -= counts_[layer][m++];
  const int64_t first_row = index * rows_[layer][m];
  const ExtentMatrix& matrix = layers_[layer][m];
  return {&matrix, in_layer / keys_of_expert_, first_row,
          std::min(rows_[layer][m], matrix.view.rows - first_row)};
}

}  // namespace hearth
