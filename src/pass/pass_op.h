// The steps of a pass that measurements tell apart, and between which other work finds its place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// Quantizing the input of a matrix product belongs to the product.
enum class PassOp : uint8_t {
  kEmbedding,  // token rows and the angles of their positions
  kNorm,
  kAttentionQkv,
  kRope,  // with the scale of the queries
  kKvStore,
  kAttention,
  kAttentionOutput,
  kRouter,        // choosing experts, collecting their tokens, adding up their results
  kFfnPredictor,  // telling which neurons will be active
  kFfnGateUp,     // of single neurons with the activation
  kFfnActivation,
  kFfnDown,
  kResidual,  // adding a block's output
  kLogits,
};
inline constexpr size_t kNumPassOps = 14;

inline const char* PassOpName(PassOp op) {
  constexpr const char* kNames[kNumPassOps] = {
      "embedding",        "norm",   "attention_qkv", "rope",        "kv_store",       "attention",
      "attention_output", "router", "ffn_predictor", "ffn_gate_up", "ffn_activation", "ffn_down",
      "residual",         "logits"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace hearth
