// Low-rank adapters (LoRA, Hu et al. 2021) of a model's matrices, as plain data: what they add, and
// which of them a text is computed with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hearth {

// The matrices of a layer that adapters can change.
enum class AdaptedMatrix : uint8_t {
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kGate,
  kUp,
  kDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
};
inline constexpr size_t kNumAdaptedMatrices = 10;

// Adds scale * (x A^T) B to x W^T. Views into memory that somebody else owns.
struct LowRankPair {
  const float* a = nullptr;  // [rank][cols]
  const float* b = nullptr;  // [rank][rows]
  int64_t rank = 0;          // 0: the matrix stays as it is
  int64_t cols = 0;          // inputs of the matrix
  int64_t rows = 0;          // outputs of the matrix
  double scale = 1;          // alpha / rank; of rank-stabilized adapters alpha / sqrt(rank)
};

// What one adapter changes, layer by layer.
struct AdapterWeights {
  using Layer = std::array<LowRankPair, kNumAdaptedMatrices>;
  std::vector<Layer> layers;
  uint64_t hash = 0;  // of all numbers above, never 0

  const LowRankPair& Of(int64_t layer, AdaptedMatrix which) const {
    return layers[static_cast<size_t>(layer)][static_cast<size_t>(which)];
  }
};

// The largest sum of ranks over matrices of a layer that share an input (q, k and v; gate and up).
int64_t WidestRanks(const AdapterWeights& adapter);

struct AdapterUse {
  const AdapterWeights* adapter = nullptr;
  float weight = 1;
};

// The adapters that a text is computed with, each with a weight. They are added in the order given.
// Refers to adapters that must outlive it. Equal keys mean equal results.
class AdapterMix {
 public:
  AdapterMix() = default;  // none
  // Uses of weight 0 are left out.
  explicit AdapterMix(std::span<const AdapterUse> uses);

  std::span<const AdapterUse> uses() const { return uses_; }
  bool empty() const { return uses_.empty(); }
  // For caches of keys and values: 0 where there are none, else a hash of adapters and weights.
  uint64_t key() const { return key_; }

 private:
  std::vector<AdapterUse> uses_;
  uint64_t key_ = 0;
};

}  // namespace hearth
