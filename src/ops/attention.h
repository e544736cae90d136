// Causal attention of a ragged batch over KV pages, with grouped queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/compute.h"
#include "tensor/kv_layout.h"
#include "tensor/view.h"

namespace hearth {

struct AttentionArgs {
  const KvLayout* layout = nullptr;
  int64_t layer = 0;
  int64_t num_heads = 0;       // a multiple of layout->num_kv_heads
  int64_t sliding_window = 0;  // newest positions that a query sees, its own included; 0: all
  FloatView q;                 // [tokens][num_heads * head_dim], already scaled
  FloatView out;               // the same shape
  // Per token: its position, and the pages of its sequence (which hold positions up to its own).
  std::span<const int64_t> positions;
  std::span<const std::span<std::byte* const>> pages;
  FloatView scores;  // scratch: a row per thread, at least max(positions) + 1 columns
};

// out[t][h] = softmax(q[t][h] . K) V over positions 0..positions[t]. Float32 throughout; the sum
// over positions runs in ascending order, so results do not depend on the split over threads.
void Attention(Compute& compute, const AttentionArgs& args);

}  // namespace hearth
