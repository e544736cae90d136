// The sizes of a model without its weights: named shapes of published models and shapes
// from JSON files. `hearth synth` makes a model of any of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/op_kinds.h"

namespace hearth {

// Every layer is alike.
struct ModelShape {
  std::string name;
  std::string architecture =
      "llama";  // GGUF's: llama (with experts: Mixtral), qwen2, qwen3, qwen3moe, smallthinker
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of one expert where there are experts
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 4096;  // tokens
  double rope_base = 10000;
  FfnActivation activation = FfnActivation::kSilu;
  double threshold = 0;     // kFatRelu only
  int64_t num_experts = 0;  // 0: one dense FFN per layer
  int64_t num_experts_per_token = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;       // of qwen2
  bool qk_norm = false;        // of qwen3 and qwen3moe
  int64_t sliding_window = 0;  // tokens; 0: none; of smallthinker in three layers of four
  double norm_epsilon = 1e-5;
  // False: two matrices and biases instead of gate, up and down, in shapes that can only be planned
  // for.
  bool gated_ffn = true;
};

// Fewer tokens cannot hold the three control tokens, 256 bytes and the word mark.
inline constexpr int64_t kMinVocabSize = 260;

// The shapes that can be made, aliases included.
std::vector<std::string> ShapeNames();

// A named shape. Throws Error(kUnsupported) for a name that can only be planned for, and
// Error(kNotFound), listing those that can, for any other.
ModelShape FindShape(std::string_view name);

// The same and those that can only be planned for, not made.
std::vector<std::string> PlannedShapeNames();
ModelShape FindPlannedShape(std::string_view name);

// What the FFNs of an architecture have where its files name no activation: SiLU, or ReLU in
// SmallThinker.
FfnActivation UsualActivation(std::string_view architecture);

// A shape from a JSON object; `file_name` is for messages and, without its folder and extension,
// the name where the object has none. Keys: name, arch (also "mistral" and "mixtral", which mean
// llama), hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim,
// vocab_size, context_length, rope_base, activation (kCommonActivationNames), threshold,
// num_experts, num_experts_per_token, tied_embeddings, sliding_window, norm_epsilon. The three
// sizes, num_heads and vocab_size are required.
// Throws Error(kInvalidArgument), naming file and key, for anything else.
ModelShape ParseShape(std::string_view json, const std::string& file_name);

// The same from a file. Throws Error(kNotFound) or Error(kIo) where it cannot be read.
ModelShape LoadShape(const std::string& path);

// What `--shape` means: a named shape, else a JSON file (anything with a '/' or ending in .json).
ModelShape ResolveShape(const std::string& name_or_path);
// The same, with the shapes that can only be planned for.
ModelShape ResolvePlannedShape(const std::string& name_or_path);

// Throws Error(kInvalidArgument), naming `where` and the field, where sizes are zero, absurd, do
// not divide as they must, or do not go with the architecture.
void ValidateShape(const ModelShape& shape, const std::string& where);

}  // namespace hearth
