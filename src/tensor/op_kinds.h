// Names of operations that a model description chooses among and kernels implement.
#pragma once

#include <cstdint>

namespace hearth {

// How an FFN turns gate g and up u of a neuron into what down multiplies.
enum class FfnActivation : uint8_t {
  kSilu,             // silu(g) * u
  kRelu,             // relu(g) * u
  kFatRelu,          // (g > threshold ? g : 0) * u
  kDRelu,            // relu(g) * relu(u)
  kThresholdedSilu,  // (|silu(g)| > threshold ? silu(g) : 0) * u
  kGelu,             // gelu(g) * u, gelu as approximated with tanh
  kGeluErf,          // gelu(g) * u, gelu by the error function itself
  // With c(x) = x kept within the threshold of 0, and m = min(g, threshold):
  // m * sigmoid(1.702 m) * (c(u) + 1), as in gpt-oss
  kClampedSwiglu,
};
inline constexpr int kNumFfnActivations = 8;

// Which components rotary embeddings rotate together.
enum class RopeLayout : uint8_t {
  kAdjacent,  // (x[2i], x[2i+1]): GGUF's llama
  kHalves,    // (x[i], x[i + dims/2]): GPT-NeoX, Qwen
};

}  // namespace hearth
