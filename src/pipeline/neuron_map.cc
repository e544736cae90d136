#include "pipeline/neuron_map.h"

namespace hearth {
namespace {

int64_t ChooseColumns(int64_t num_experts, int64_t all) {
  int64_t columns = NeuronMap::kMostColumns;
  if (num_experts <= columns) columns -= columns % num_experts;
  return std::min(columns, all);
}

}  // namespace

NeuronMap::NeuronMap(int64_t num_layers, int64_t num_experts, int64_t neurons)
    : num_layers_(num_layers), num_experts_(num_experts), neurons_(neurons) {
  const int64_t all = num_experts * neurons;
  const int64_t columns = ChooseColumns(num_experts, all);
  for (int64_t c = 0; c <= columns; ++c) begins_.push_back((c * all + columns - 1) / columns);
  counts_.resize(static_cast<size_t>(kNumNeuronPlaces * num_layers * columns));
}

void NeuronMap::Begin(int64_t tokens) noexcept {
  std::fill(counts_.begin(), counts_.end(), uint16_t{0});
  tokens_ = tokens;
  is_whole_ = false;
}

}  // namespace hearth
