// Names of operations that a model description chooses among and kernels implement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

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

// What quantized weights are multiplied with (MNN-LLM §5.1, §5.3).
enum class TileActivations : uint8_t {
  kInt8,  // codes with a scale for every 32 (W4A8, W8A8)
  kF16,   // floats of 11 bits, as many as binary16 has (W4A16), with the exponents of float32
};
// By TileActivations, as users name them; and as they are told them, the default first.
inline constexpr const char* kTileActivationsNames[] = {"i8", "f16"};
inline constexpr const char* kTileActivationsText = "i8|f16";

// The one with this name; nothing for others.
inline std::optional<TileActivations> TileActivationsFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kTileActivationsNames); ++i) {
    if (kTileActivationsNames[i] == name) return static_cast<TileActivations>(i);
  }
  return std::nullopt;
}

// Which components rotary embeddings rotate together.
enum class RopeLayout : uint8_t {
  kAdjacent,  // (x[2i], x[2i+1]): GGUF's llama
  kHalves,    // (x[i], x[i + dims/2]): GPT-NeoX, Qwen
};

}  // namespace hearth
