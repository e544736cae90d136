#include "pass/activations.h"

#include <algorithm>

#include "ops/attention.h"

namespace hearth {

PassWidths::PassWidths(const ModelSpec& spec, const PassLimits& limits, int thread_count)
    : tokens(limits.max_tokens),
      threads(thread_count),
      hidden(spec.hidden_size),
      ffn_of_neurons(limits.ffn_of_neurons),
      tokens_together(limits.tokens_together),
      device_neurons(limits.device_neurons),
      sums_on_device(limits.sums_on_device),
      layers_on_device(limits.layers_on_device) {
  for (const RopeSpec& rope : RopesOf(spec)) {
    ++ropes;
    rope_pairs = std::max(rope_pairs, rope.dims / 2);
  }
  const KvLayout layout = KvLayoutFor(spec, limits.kv_codec);
  for (size_t l = 0; l < device_neurons.size(); ++l) {
    most_on_device = std::max(most_on_device, device_neurons[l]);
    most_beside_device =
        std::max(most_beside_device, spec.layers[l].ffn.intermediate_size - device_neurons[l]);
  }
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    q = std::max(q, attention.num_heads * attention.head_dim);
    kv = std::max(kv, attention.num_kv_heads * attention.head_dim);
    parallel_attention |= layer.parallel_attention;
    ffn = std::max(ffn, layer.ffn.intermediate_size);
    experts = std::max(experts, layer.ffn.num_experts);
    shared = std::max(shared, layer.ffn.shared_intermediate_size);
    const AttentionScratch scratch =
        AttentionScratchFor(layout, attention.num_heads, limits.max_context, threads);
    attention_thread = std::max(attention_thread, scratch.thread_floats);
    attention_partial = std::max(attention_partial, scratch.partial_floats);
  }
}

int64_t PassWidths::widest_input() const {
  return std::max({hidden, q, shared, ffn_of_neurons ? 0 : ffn});
}

void Activations::Lay(const PassWidths& widths, ScratchLayout& layout) {
  const int64_t tokens = widths.tokens;
  for (FloatView* view : {&hidden, &normed, &block_out}) *view = layout.Take(tokens, widths.hidden);
  if (widths.parallel_attention) attention_out = layout.Take(tokens, widths.hidden);
  q = layout.Take(tokens, widths.q);
  k = layout.Take(tokens, widths.kv);
  v = layout.Take(tokens, widths.kv);
  if (widths.layers_on_device) {
    other_k = layout.Take(tokens, widths.kv);
    other_v = layout.Take(tokens, widths.kv);
  }
  attended = layout.Take(tokens, widths.q);
  if (!widths.ffn_of_neurons) {
    gate = layout.Take(tokens, widths.ffn);
    up = layout.Take(tokens, widths.ffn);
  }
  if (widths.experts > 0) {
    gathered = layout.Take(tokens, widths.hidden);
    expert_out = layout.Take(tokens, widths.hidden);
    router = layout.Take(tokens, widths.experts);
  }
  if (widths.shared > 0) {
    shared_gate = layout.Take(tokens, widths.shared);
    shared_up = layout.Take(tokens, widths.shared);
    shared_out = layout.Take(tokens, widths.hidden);
  }
  cos = layout.Take(widths.ropes * tokens, widths.rope_pairs);
  sin = layout.Take(widths.ropes * tokens, widths.rope_pairs);
  attention_scratch = layout.Take(widths.threads, widths.attention_thread);
  attention_partial = layout.Take(1, widths.attention_partial);
}

Activations Activations::FirstRows(int64_t rows) const {
  Activations cut = *this;
  for (FloatView* view :
       {&cut.hidden, &cut.normed, &cut.block_out, &cut.q, &cut.k, &cut.v, &cut.attended}) {
    *view = view->Rows(0, rows);
  }
  if (attention_out.data != nullptr) cut.attention_out = attention_out.Rows(0, rows);
  if (other_k.data != nullptr) {
    cut.other_k = other_k.Rows(0, rows);
    cut.other_v = other_v.Rows(0, rows);
  }
  if (router.data != nullptr) cut.router = router.Rows(0, rows);
  if (shared_out.data != nullptr) {
    for (FloatView* view : {&cut.shared_gate, &cut.shared_up, &cut.shared_out}) {
      *view = view->Rows(0, rows);
    }
  }
  return cut;
}

}  // namespace hearth
