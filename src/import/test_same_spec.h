// For tests: two descriptions of one model.
#pragma once

#include <gtest/gtest.h>

#include "model/model_spec.h"

namespace hearth {

inline void ExpectSameRope(const RopeSpec& a, const RopeSpec& b) {
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.dims, b.dims);
  EXPECT_EQ(a.base, b.base);
  EXPECT_EQ(a.scaling, b.scaling);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.original_context, b.original_context);
  EXPECT_NEAR(a.attention_factor, b.attention_factor, 1e-6);
}

// All but the name; of the layers the first and their number.
inline void ExpectSameSpec(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  const LayerSpec &x = a.layers.at(0), &y = b.layers.at(0);
  ASSERT_EQ(x.attention.rope.has_value(), y.attention.rope.has_value());
  if (x.attention.rope) ExpectSameRope(*x.attention.rope, *y.attention.rope);
  EXPECT_EQ(x.norm_epsilon, y.norm_epsilon);
  EXPECT_EQ(x.norm_before, y.norm_before);
  EXPECT_EQ(x.norm_after, y.norm_after);
  EXPECT_EQ(x.residual_scale, y.residual_scale);
  EXPECT_EQ(x.attention.num_heads, y.attention.num_heads);
  EXPECT_EQ(x.attention.num_kv_heads, y.attention.num_kv_heads);
  EXPECT_EQ(x.attention.head_dim, y.attention.head_dim);
  EXPECT_EQ(x.attention.sliding_window, y.attention.sliding_window);
  EXPECT_EQ(x.attention.query_scale, y.attention.query_scale);
  EXPECT_EQ(x.attention.softcap, y.attention.softcap);
  EXPECT_EQ(x.attention.qkv_bias, y.attention.qkv_bias);
  EXPECT_EQ(x.attention.output_bias, y.attention.output_bias);
  EXPECT_EQ(x.attention.qk_norm, y.attention.qk_norm);
  EXPECT_EQ(x.ffn.activation, y.ffn.activation);
  EXPECT_EQ(x.ffn.threshold, y.ffn.threshold);
  EXPECT_EQ(x.ffn.intermediate_size, y.ffn.intermediate_size);
  EXPECT_EQ(x.ffn.num_experts, y.ffn.num_experts);
  EXPECT_EQ(x.ffn.num_experts_per_token, y.ffn.num_experts_per_token);
  EXPECT_EQ(x.ffn.router_score, y.ffn.router_score);
  EXPECT_EQ(x.ffn.routes_before_attention, y.ffn.routes_before_attention);
  EXPECT_EQ(x.ffn.normalize_expert_weights, y.ffn.normalize_expert_weights);
  EXPECT_EQ(x.ffn.shared_intermediate_size, y.ffn.shared_intermediate_size);
  EXPECT_EQ(x.ffn.shared_gate, y.ffn.shared_gate);
}

}  // namespace hearth
