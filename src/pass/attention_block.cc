#include "pass/attention_block.h"

#include <cmath>
#include <span>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "pass/rope_table.h"

namespace hearth {

AttentionBlock::AttentionBlock(const PassContext& context) : context_(context) {
  const RopeSpec& rope = context.spec.rope;
  std::span<const float> factors;
  if (!context.weights.rope_factors.empty()) {
    factors = {FloatsOf(context.weights.rope_factors), static_cast<size_t>(rope.dims / 2)};
  }
  frequencies_ = RopeFrequencies(rope, factors);
}

void AttentionBlock::Turn(const PassRows& rows, const Activations& a) const {
  const double factor = context_.spec.rope.attention_factor;
  context_.compute.team().ParallelFor(rows.count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<double>(rows.positions[static_cast<size_t>(r)]);
      for (int64_t i = 0; i < a.cos.cols; ++i) {
        const double angle = position * frequencies_[static_cast<size_t>(i)];
        a.cos.row(r)[i] = static_cast<float>(std::cos(angle) * factor);
        a.sin.row(r)[i] = static_cast<float>(std::sin(angle) * factor);
      }
    }
  });
}

void AttentionBlock::Run(int64_t layer, const PassRows& rows, const Activations& a) const {
  const LayerWeights& w = context_.layer_weights(layer);
  RmsNorm(context_.compute, a.hidden, FloatsOf(w.attn_norm), context_.layer(layer).norm_epsilon,
          a.normed);
  context_.seam.After(PassOp::kNorm);
  Project(layer, a);
  Rotate(layer, a);
  Store(layer, rows, a);
  Attend(layer, rows, a);
  context_.input.Set(a.attended);
  const Product output{w.attn_output, a.block_out, FloatsOf(w.attn_output_bias)};
  MatMul(context_.compute, {&output, 1}, context_.input);
  context_.seam.After(PassOp::kAttentionOutput);
}

// q, k and v of what a.normed holds; heads of q and k are normed where the model does that.
void AttentionBlock::Project(int64_t layer, const Activations& a) const {
  const LayerSpec& spec = context_.layer(layer);
  const LayerWeights& w = context_.layer_weights(layer);
  context_.input.Set(a.normed);
  const Product qkv[] = {{w.attn_q, a.q, FloatsOf(w.attn_q_bias)},
                         {w.attn_k, a.k, FloatsOf(w.attn_k_bias)},
                         {w.attn_v, a.v, FloatsOf(w.attn_v_bias)}};
  MatMul(context_.compute, qkv, context_.input);
  context_.seam.After(PassOp::kAttentionQkv);
  if (!spec.attention.qk_norm) return;
  RmsNormHeads(context_.compute, a.q, spec.attention.num_heads, spec.attention.head_dim,
               FloatsOf(w.attn_q_norm), spec.norm_epsilon);
  RmsNormHeads(context_.compute, a.k, spec.attention.num_kv_heads, spec.attention.head_dim,
               FloatsOf(w.attn_k_norm), spec.norm_epsilon);
  context_.seam.After(PassOp::kNorm);
}

void AttentionBlock::Rotate(int64_t layer, const Activations& a) const {
  const AttentionSpec& spec = context_.layer(layer).attention;
  const RopeLayout layout = context_.spec.rope.layout;
  Rope(context_.compute, a.q, spec.num_heads, spec.head_dim, a.cos, a.sin, layout);
  Rope(context_.compute, a.k, spec.num_kv_heads, spec.head_dim, a.cos, a.sin, layout);
  Scale(context_.compute, a.q, static_cast<float>(spec.query_scale));
  context_.seam.After(PassOp::kRope);
}

void AttentionBlock::Store(int64_t layer, const PassRows& rows, const Activations& a) const {
  const auto to_half = context_.compute.to_half();
  context_.compute.team().ParallelFor(rows.count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto row = static_cast<size_t>(r);
      rows.sequences[row]->Store(layer, rows.positions[row], a.k.row(r), a.v.row(r), to_half);
    }
  });
  context_.seam.After(PassOp::kKvStore);
}

void AttentionBlock::Attend(int64_t layer, const PassRows& rows, const Activations& a) const {
  const AttentionSpec& spec = context_.layer(layer).attention;
  const KvLayout layout = rows.sequences.front()->layout();
  Attention(context_.compute, {.layout = &layout,
                               .layer = layer,
                               .num_heads = spec.num_heads,
                               .sliding_window = spec.sliding_window,
                               .q = a.q,
                               .out = a.attended,
                               .positions = rows.positions,
                               .pages = rows.pages,
                               .scratch = a.attention_scratch,
                               .partial = a.attention_partial});
  context_.seam.After(PassOp::kAttention);
}

}  // namespace hearth
