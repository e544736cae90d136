#include "pass/attention_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "pass/block_norms.h"
#include "pass/math/rope_frequencies.h"
#include "pass/math/spread_heads.h"
#include "pass/products.h"

namespace hearth {

AttentionBlock::AttentionBlock(const PassContext& context, int64_t max_context)
    : context_(context) {
  const std::vector<RopeSpec> ropes = RopesOf(context.spec);
  for (const RopeSpec& rope : ropes) {
    std::span<const float> factors;
    if (rope.has_factors || rope.scaling == RopeScalingKind::kLong) {
      factors = {FloatsOf(FactorsOf(rope, max_context)), static_cast<size_t>(rope.dims / 2)};
    }
    tables_.push_back({rope, RopeFrequencies(rope, factors)});
  }
  for (const LayerSpec& layer : context.spec.layers) {
    const std::optional<RopeSpec>& rope = layer.attention.rope;
    table_of_layer_.push_back(rope ? std::find(ropes.begin(), ropes.end(), *rope) - ropes.begin()
                                   : -1);
  }
}

const WeightView& AttentionBlock::FactorsOf(const RopeSpec& rope, int64_t max_context) const {
  const bool is_long =
      rope.scaling == RopeScalingKind::kLong && max_context > rope.original_context;
  return is_long ? context_.weights.long_rope_factors : context_.weights.rope_factors;
}

FloatView AttentionBlock::AnglesOf(const FloatView& all, int64_t table,
                                   const PassRows& rows) const {
  const int64_t most_rows = all.rows / static_cast<int64_t>(tables_.size());
  FloatView angles = all.Rows(table * most_rows, rows.count());
  angles.cols = tables_[static_cast<size_t>(table)].rope.dims / 2;
  return angles;
}

void AttentionBlock::Turn(const PassRows& rows, const Activations& a) const {
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Table& table = tables_[t];
    const FloatView cos = AnglesOf(a.cos, static_cast<int64_t>(t), rows);
    const FloatView sin = AnglesOf(a.sin, static_cast<int64_t>(t), rows);
    context_.compute.team().ParallelFor(rows.count(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const auto position = static_cast<double>(rows.positions[static_cast<size_t>(r)]);
        for (int64_t i = 0; i < cos.cols; ++i) {
          const double angle = position * table.frequencies[static_cast<size_t>(i)];
          cos.row(r)[i] = static_cast<float>(std::cos(angle) * table.rope.attention_factor);
          sin.row(r)[i] = static_cast<float>(std::sin(angle) * table.rope.attention_factor);
        }
      }
    });
    context_.device_kv.SetAngles(static_cast<int64_t>(t), cos, sin);
  }
}

void AttentionBlock::Run(int64_t layer, const PassRows& rows, const Activations& a) const {
  const LayerWeights& w = context_.layer_weights(layer);
  NormBefore(context_, layer, {w.attn_norm, w.attn_norm_bias}, a);
  if (context_.device_kv.Has(layer)) {
    RunOnDevice(layer, a);
    Store(layer, rows, a.k, a.v);
  } else {
    RunHere(layer, rows, a);
  }
  NormAfter(context_, layer, w.attn_after_norm, a);
}

void AttentionBlock::RunOnDevice(int64_t layer, const Activations& a) const {
  context_.seam.Saw(layer, MatrixInput::kAttentionQkv, a.normed);
  context_.device_kv.Run(layer, a, context_.seam);
  context_.spilled.Skip(layer);
  context_.seam.After(PassOp::kAttention);
}

// Attention over the host's pages; products with matrices are where these are.
void AttentionBlock::RunHere(int64_t layer, const PassRows& rows, const Activations& a) const {
  const LayerWeights& w = context_.layer_weights(layer);
  const UnitMatrices on_device = OnDevice(layer);
  Project(layer, on_device, a);
  Rotate(layer, rows, a);
  Store(layer, rows, a.k, a.v);
  Attend(layer, rows, a);
  context_.input.Set(a.attended);
  context_.seam.Saw(layer, MatrixInput::kAttentionOutput, a.attended);
  const Product output{w.attn_output, a.block_out, FloatsOf(w.attn_output_bias)};
  Multiply(context_, layer, {&output, 1}, std::span(on_device).last(1));
  if (context_.IsUploaded({UnitKind::kAttention, layer})) {
    context_.device->uploads->Done(context_.device->matrices->Mark());
  }
  const AdaptedProduct adapted = {AdaptedMatrix::kAttentionOutput, a.block_out};
  context_.adapters.Add(layer, a.attended, {&adapted, 1});
  context_.seam.After(PassOp::kAttentionOutput);
}

// Where its matrices are on a device; empty ones where they are not. Waits for those that are
// uploaded.
UnitMatrices AttentionBlock::OnDevice(int64_t layer) const {
  const UploadUnit unit = {UnitKind::kAttention, layer};
  if (context_.IsUploaded(unit)) return context_.device->uploads->Take(unit);
  const DeviceLayer& device = context_.device_layer(layer);
  if (!device.has_attention()) return {};
  const accel::DeviceMatrices& matrices = *context_.device->matrices;
  return {matrices.At(device.q), matrices.At(device.k), matrices.At(device.v),
          matrices.At(device.attention_output)};
}

// q, k and v of what a.normed holds; heads of q and k are normed where the model does that.
void AttentionBlock::Project(int64_t layer, const UnitMatrices& on_device,
                             const Activations& a) const {
  const LayerSpec& spec = context_.layer(layer);
  const LayerWeights& w = context_.layer_weights(layer);
  context_.input.Set(a.normed);
  context_.seam.Saw(layer, MatrixInput::kAttentionQkv, a.normed);
  const Product qkv[] = {{w.attn_q, a.q, FloatsOf(w.attn_q_bias)},
                         {w.attn_k, a.k, FloatsOf(w.attn_k_bias)},
                         {w.attn_v, a.v, FloatsOf(w.attn_v_bias)}};
  Multiply(context_, layer, qkv, std::span(on_device).first(3));
  const AdaptedProduct adapted[] = {
      {AdaptedMatrix::kQuery, a.q}, {AdaptedMatrix::kKey, a.k}, {AdaptedMatrix::kValue, a.v}};
  context_.adapters.Add(layer, a.normed, adapted);
  context_.seam.After(PassOp::kAttentionQkv);
  NormQueriesAndKeys(spec, w, a);
}

void AttentionBlock::NormQueriesAndKeys(const LayerSpec& spec, const LayerWeights& w,
                                        const Activations& a) const {
  const AttentionSpec& attention = spec.attention;
  if (attention.qk_norm == QkNorm::kNone) return;
  // The pieces that are normed by themselves.
  const bool is_of_head = attention.qk_norm == QkNorm::kHeads;
  const int64_t q = attention.num_heads * attention.head_dim;
  const int64_t kv = attention.num_kv_heads * attention.head_dim;
  const int64_t q_piece = is_of_head ? attention.head_dim : q;
  const int64_t kv_piece = is_of_head ? attention.head_dim : kv;
  RmsNormHeads(context_.compute, a.q, q / q_piece, q_piece, FloatsOf(w.attn_q_norm),
               spec.norm_epsilon);
  RmsNormHeads(context_.compute, a.k, kv / kv_piece, kv_piece, FloatsOf(w.attn_k_norm),
               spec.norm_epsilon);
  context_.seam.After(PassOp::kNorm);
}

void AttentionBlock::Rotate(int64_t layer, const PassRows& rows, const Activations& a) const {
  const AttentionSpec& spec = context_.layer(layer).attention;
  if (spec.rope) {
    const int64_t table = table_of_layer_[static_cast<size_t>(layer)];
    const Rotation rotation = {.cos = AnglesOf(a.cos, table, rows),
                               .sin = AnglesOf(a.sin, table, rows),
                               .layout = spec.rope->layout};
    Rope(context_.compute, a.q, spec.num_heads, spec.head_dim, rotation);
    Rope(context_.compute, a.k, spec.num_kv_heads, spec.head_dim, rotation);
  }
  if (spec.temperature_scale > 0) {
    ScaleByPosition(context_.compute, a.q, rows.positions,
                    {.scale = spec.query_scale,
                     .temperature = spec.temperature_scale,
                     .period = spec.temperature_period});
  } else {
    Scale(context_.compute, a.q, static_cast<float>(spec.query_scale));
  }
  if (const KvLayout layout = rows.sequences.front()->layout(); layout.has_spread_keys()) {
    const int64_t range = layout.key_block().range();
    SpreadHeads(context_.compute, a.q, spec.num_heads, spec.head_dim, range);
    SpreadHeads(context_.compute, a.k, spec.num_kv_heads, spec.head_dim, range);
  }
  context_.seam.After(PassOp::kRope);
}

void AttentionBlock::Store(int64_t layer, const PassRows& rows, FloatView keys,
                           FloatView values) const {
  const kernels::KvEncoders& encoders = context_.compute.kv_encoders();
  context_.compute.team().ParallelFor(rows.count(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const auto row = static_cast<size_t>(r);
      rows.sequences[row]->Store(layer, rows.positions[row], keys.row(r), values.row(r), encoders);
    }
  });
  context_.seam.After(PassOp::kKvStore);
}

void AttentionBlock::Attend(int64_t layer, const PassRows& rows, const Activations& a) const {
  const AttentionSpec& spec = context_.layer(layer).attention;
  const KvLayout layout = rows.sequences.front()->layout();
  // Parts of pages that were read are the layer's alone.
  const bool is_spilled = context_.spilled.has_any();
  Attention(context_.compute,
            {.layout = &layout,
             .layer = is_spilled ? 0 : layer,
             .num_heads = spec.num_heads,
             .sliding_window = spec.sliding_window,
             .sinks = FloatsOf(context_.layer_weights(layer).attn_sinks),
             .softcap = static_cast<float>(spec.softcap),
             .q = a.q,
             .out = a.attended,
             .positions = rows.positions,
             .pages = is_spilled ? context_.spilled.PagesOf(layer) : std::span(rows.pages),
             .scratch = a.attention_scratch,
             .partial = a.attention_partial});
  if (is_spilled) context_.spilled.Done(layer);
  context_.seam.After(PassOp::kAttention);
}

}  // namespace hearth
