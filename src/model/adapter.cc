#include "model/adapter.h"

#include <algorithm>

#include "base/checksum.h"

namespace hearth {
namespace {

// Matrices of a layer that are multiplied with the same input.
using enum AdaptedMatrix;
constexpr std::array<AdaptedMatrix, 3> kSharedInputs[] = {
    {kQuery, kKey, kValue},
    {kAttentionOutput, kAttentionOutput, kAttentionOutput},
    {kGate, kUp, kUp},
    {kDown, kDown, kDown},
    {kSharedGate, kSharedUp, kSharedUp},
    {kSharedDown, kSharedDown, kSharedDown}};

}  // namespace

int64_t WidestRanks(const AdapterWeights& adapter) {
  int64_t widest = 0;
  for (const AdapterWeights::Layer& layer : adapter.layers) {
    for (const auto& group : kSharedInputs) {
      int64_t ranks = 0;
      for (size_t i = 0; i < group.size(); ++i) {
        if (i > 0 && group[i] == group[i - 1]) continue;
        ranks += layer[static_cast<size_t>(group[i])].rank;
      }
      widest = std::max(widest, ranks);
    }
  }
  return widest;
}

AdapterMix::AdapterMix(std::span<const AdapterUse> uses) {
  ChecksumStream hash;
  for (const AdapterUse& use : uses) {
    if (use.weight == 0) continue;
    uses_.push_back(use);
    hash.Update(std::as_bytes(std::span(&use.adapter->hash, 1)));
    hash.Update(std::as_bytes(std::span(&use.weight, 1)));
  }
  if (!uses_.empty()) key_ = std::max<uint64_t>(hash.Digest(), 1);
}

}  // namespace hearth
