// For tests: two descriptions of one model.
#pragma once

#include <gtest/gtest.h>

#include "model/model_spec.h"

namespace hearth {

// All but the name; of the layers the first and their number.
inline void ExpectSameSpec(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.rope.layout, b.rope.layout);
  EXPECT_EQ(a.rope.dims, b.rope.dims);
  EXPECT_EQ(a.rope.base, b.rope.base);
  EXPECT_EQ(a.rope.scaling, b.rope.scaling);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.original_context, b.rope.original_context);
  EXPECT_NEAR(a.rope.attention_factor, b.rope.attention_factor, 1e-6);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  const LayerSpec &x = a.layers.at(0), &y = b.layers.at(0);
  EXPECT_EQ(x.norm_epsilon, y.norm_epsilon);
  EXPECT_EQ(x.attention.num_heads, y.attention.num_heads);
  EXPECT_EQ(x.attention.num_kv_heads, y.attention.num_kv_heads);
  EXPECT_EQ(x.attention.head_dim, y.attention.head_dim);
  EXPECT_EQ(x.attention.sliding_window, y.attention.sliding_window);
  EXPECT_EQ(x.attention.qkv_bias, y.attention.qkv_bias);
  EXPECT_EQ(x.attention.qk_norm, y.attention.qk_norm);
  EXPECT_EQ(x.ffn.activation, y.ffn.activation);
  EXPECT_EQ(x.ffn.threshold, y.ffn.threshold);
  EXPECT_EQ(x.ffn.intermediate_size, y.ffn.intermediate_size);
  EXPECT_EQ(x.ffn.num_experts, y.ffn.num_experts);
  EXPECT_EQ(x.ffn.num_experts_per_token, y.ffn.num_experts_per_token);
  EXPECT_EQ(x.ffn.normalize_expert_weights, y.ffn.normalize_expert_weights);
}

}  // namespace hearth
