// Which type each tensor of a model is quantized to.
//
// A recipe has a type for all matrices, more bits for those where errors weigh most, and types for
// the embedding and the output matrix:
//   attn_v, ffn_down  feed everything that follows; some recipes give them more bits in half of the
//                     layers, the first and the last quarter, or in all
//   output            decides between tokens; Q6_K in most recipes. Where the model has no output
//                     matrix of its own, the embedding takes its place
// Norms, biases, routers, learned positions and whatever is no matrix stay F32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/gguf.h"

namespace hearth {

// Where attn_v and ffn_down have `more` bits than other matrices.
enum class MoreBits : uint8_t { kNowhere, kHalf, kEverywhere };

struct Recipe {
  std::string name;
  DType base = DType::kQ4_K;
  DType more = DType::kQ4_K;  // of attn_v and ffn_down
  MoreBits where = MoreBits::kNowhere;
  DType attention_output = DType::kQ4_K;
  DType output = DType::kQ6_K;
  DType embedding = DType::kQ4_K;
  bool experts_only = false;  // `base` is for experts, `embedding` for all other matrices
  uint32_t file_type = 0;     // general.file_type
};

// The recipes that have names, and what each does in a few words.
std::vector<std::string> RecipeNames();
std::string DescribeRecipe(const Recipe& recipe);
// In either case. Throws Error(kInvalidArgument) for an unknown name.
Recipe FindRecipe(std::string_view name);

// PATTERN=TYPE: tensors whose names contain the pattern, in which * stands for anything.
struct TensorRule {
  std::string pattern;
  DType type = DType::kF16;
};
// Throws Error(kInvalidArgument) for what is no rule, or a type that cannot be made.
TensorRule ParseTensorRule(std::string_view text);
bool MatchesPattern(std::string_view pattern, std::string_view name);

// A type by its name, one that tensors can be quantized to. Throws Error(kInvalidArgument).
DType ParseQuantType(std::string_view name);

struct QuantizeRules {
  Recipe recipe;
  std::optional<DType> embedding;  // instead of the recipe's
  std::optional<DType> output;
  std::vector<TensorRule> tensors;  // the last that matches counts
};

// One tensor as it will be.
struct PlannedTensor {
  DType type = DType::kF32;
  DType wished = DType::kF32;  // differs where blocks of that do not divide its rows
  bool has_fallback() const { return type != wished; }
};

// Whether a tensor is a matrix that recipes are about.
bool IsQuantizable(const GgufTensor& tensor);

// A type for every tensor of the file, in its order. A type whose blocks do not divide a tensor's
// rows gives way to one of 32 weights that has as many bits, else to F16. Throws
// Error(kInvalidArgument) for a rule that matches no matrix, Error(kUnsupported) for a recipe for
// experts where there are none.
std::vector<PlannedTensor> PlanTypes(const GgufFile& file, const QuantizeRules& rules);

}  // namespace hearth
