// Causal attention of a ragged batch over KV pages, with grouped queries.
//
// Positions are cut into splits of fixed length. A split gives every query a partial softmax and
// a partial sum of values, which are merged in ascending order. So results do not depend on who
// computed which split, on the chunking of a prompt or on the rest of the batch; and a long context
// can be shared by more threads than there are KV heads.
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
  int64_t num_heads = 0;         // a multiple of layout->num_kv_heads
  int64_t sliding_window = 0;    // newest positions that a query sees, its own included; 0: all
  const float* sinks = nullptr;  // [num_heads]: a score of each with no value; null: there is none
  float softcap = 0;             // scores s become softcap * tanh(s / softcap); 0: they stay
  FloatView q;                   // [tokens][num_heads * head_dim], already scaled
  FloatView out;                 // the same shape
  // Per token: its position, and the pages of its sequence (which hold positions up to its own).
  // Tokens of a sequence are neighbours with ascending positions.
  std::span<const int64_t> positions;
  std::span<const std::span<std::byte* const>> pages;
  FloatView scratch;  // a row per thread, AttentionScratch::thread_floats columns
  FloatView partial;  // AttentionScratch::partial_floats floats in one row
};

// Scratch that Attention needs for a model and a machine.
struct AttentionScratch {
  int64_t thread_floats = 0;   // per thread
  int64_t partial_floats = 0;  // for all threads
};
AttentionScratch AttentionScratchFor(const KvLayout& layout, int64_t num_heads, int64_t max_context,
                                     int threads);

// out[t][h] = softmax(q[t][h] . K) V over positions 0..positions[t]. Float32 throughout.
void Attention(Compute& compute, const AttentionArgs& args);

}  // namespace hearth
