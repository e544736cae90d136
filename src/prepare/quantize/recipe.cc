#include "prepare/quantize/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "kernels/search/search_encode.h"
#include "ops/repack.h"

namespace hearth {
namespace {

// All matrices of one type; the output in `output`.
Recipe Plain(std::string name, DType type, DType output, uint32_t file_type) {
  Recipe recipe;
  recipe.name = std::move(name);
  recipe.base = recipe.more = recipe.attention_output = recipe.embedding = type;
  recipe.output = output;
  recipe.file_type = file_type;
  return recipe;
}

Recipe Mixed(std::string name, DType base, DType more, MoreBits where, uint32_t file_type) {
  Recipe recipe = Plain(std::move(name), base, DType::kQ6_K, file_type);
  recipe.more = more;
  recipe.where = where;
  return recipe;
}

// attn_output too gets more bits than the rest, which has few.
Recipe Low(std::string name, DType base, DType more, uint32_t file_type) {
  Recipe recipe = Mixed(std::move(name), base, more, MoreBits::kEverywhere, file_type);
  recipe.attention_output = more;
  return recipe;
}

// MNN-LLM's combined quantization (M §4.2): the embedding, of which a few rows are read, in bf16;
// the output matrix in int8; layers in int4 or int8.
Recipe Combined(std::string name, DType layers, uint32_t file_type) {
  Recipe recipe = Plain(std::move(name), layers, DType::kQ8_0, file_type);
  recipe.embedding = DType::kBF16;
  return recipe;
}

Recipe ExpertRecipe(std::string name, DType experts, uint32_t file_type) {
  Recipe recipe = Plain(std::move(name), DType::kQ8_0, DType::kQ8_0, file_type);
  recipe.base = experts;
  recipe.experts_only = true;
  return recipe;
}

// Numbers are those of general.file_type in GGUF.
std::vector<Recipe> AllRecipes() {
  using enum DType;
  return {Low("q2_k", kQ2_K, kQ3_K, 10),
          Plain("q3_k_s", kQ3_K, kQ6_K, 11),
          Low("q3_k_m", kQ3_K, kQ4_K, 12),
          Plain("q4_k_s", kQ4_K, kQ6_K, 14),
          Mixed("q4_k_m", kQ4_K, kQ6_K, MoreBits::kHalf, 15),
          Plain("q5_k_s", kQ5_K, kQ6_K, 16),
          Mixed("q5_k_m", kQ5_K, kQ6_K, MoreBits::kHalf, 17),
          Plain("q6_k", kQ6_K, kQ6_K, 18),
          Plain("q4_0", kQ4_0, kQ6_K, 2),
          Plain("q4_1", kQ4_1, kQ6_K, 3),
          Plain("q5_0", kQ5_0, kQ6_K, 8),
          Plain("q5_1", kQ5_1, kQ6_K, 9),
          Plain("q8_0", kQ8_0, kQ8_0, 7),
          Plain("iq4_nl", kIQ4_NL, kQ6_K, 25),
          Plain("iq4_xs", kIQ4_XS, kQ6_K, 30),
          ExpertRecipe("mxfp4", kMXFP4, 38),
          Combined("mnn-int4", kQ4_1, 3),
          Combined("mnn-int8", kQ8_0, 7),
          Plain("f16", kF16, kF16, 1),
          Plain("bf16", kBF16, kBF16, 32)};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kOutput = "output.weight";

// "blk.12.ffn_down.weight": 12 and "ffn_down.weight"; nothing for tensors of no layer.
struct LayerName {
  int64_t layer = 0;
  std::string_view role;
};
std::optional<LayerName> LayerNameOf(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  LayerName parts;
  const char* const begin = name.data() + 4;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), parts.layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  parts.role = name.substr(static_cast<size_t>(end + 1 - name.data()));
  return parts;
}

bool IsExpert(std::string_view name) { return name.find("_exps.") != std::string_view::npos; }

DType TypeInLayer(const Recipe& recipe, const LayerName& name, int64_t num_layers) {
  if (name.role.starts_with("attn_output.")) return recipe.attention_output;
  if (!name.role.starts_with("attn_v.") && !name.role.starts_with("ffn_down")) return recipe.base;
  if (recipe.where == MoreBits::kEverywhere) return recipe.more;
  const bool is_outer = 4 * name.layer < num_layers || 4 * name.layer >= 3 * num_layers;
  return recipe.where == MoreBits::kHalf && is_outer ? recipe.more : recipe.base;
}

// What is next best where rows are no multiple of a type's blocks.
DType FallbackOf(DType type) {
  switch (type) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
      return DType::kIQ4_NL;
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kF16;
  }
}

// What recipe and rules want, tensor by tensor.
class TypePlanner {
 public:
  TypePlanner(const GgufFile& file, const QuantizeRules& rules)
      : rules_(rules), has_output_(file.FindTensorOrNull(kOutput) != nullptr) {
    for (const GgufTensor& tensor : file.tensors()) {
      const auto name = LayerNameOf(tensor.name);
      if (name) num_layers_ = std::max(num_layers_, name->layer + 1);
    }
  }

  DType Wish(const GgufTensor& tensor) const {
    DType type = OfRecipe(tensor);
    for (const TensorRule& rule : rules_.tensors) {
      if (MatchesPattern(rule.pattern, tensor.name)) type = rule.type;
    }
    return type;
  }

 private:
  DType OfRecipe(const GgufTensor& tensor) const {
    const Recipe& recipe = rules_.recipe;
    if (tensor.name == kOutput) return rules_.output.value_or(recipe.output);
    if (tensor.name == kEmbedding) {
      if (rules_.embedding) return *rules_.embedding;
      if (has_output_) return recipe.embedding;
      return rules_.output.value_or(recipe.output);
    }
    if (recipe.experts_only) return IsExpert(tensor.name) ? recipe.base : recipe.embedding;
    const auto name = LayerNameOf(tensor.name);
    return name ? TypeInLayer(recipe, *name, num_layers_) : recipe.base;
  }

  const QuantizeRules& rules_;
  const bool has_output_;
  int64_t num_layers_ = 0;
};

void CheckRules(const GgufFile& file, const QuantizeRules& rules) {
  const auto any = [&file](const auto& is_meant) {
    return std::any_of(file.tensors().begin(), file.tensors().end(), is_meant);
  };
  for (const TensorRule& rule : rules.tensors) {
    const auto is_meant = [&rule](const GgufTensor& tensor) {
      return MatchesPattern(rule.pattern, tensor.name);
    };
    if (any([&](const GgufTensor& t) { return is_meant(t) && IsQuantizable(t); })) continue;
    throw Error(
        ErrorCode::kInvalidArgument, Field{"tensor"},
        fmt::format("'{}' matches {}", Printable(rule.pattern),
                    any(is_meant) ? "only tensors that stay F32" : "no tensor of the model"));
  }
  if (rules.recipe.experts_only && !any([](const GgufTensor& t) { return IsExpert(t.name); })) {
    throw Error(
        ErrorCode::kUnsupported, file.path(),
        fmt::format("recipe {} is for experts, of which this model has none", rules.recipe.name));
  }
  if (rules.output && !file.FindTensorOrNull(kOutput) && rules.embedding) {
    throw Error(ErrorCode::kInvalidArgument, Field{"output-tensor"},
                "the embedding is this model's output matrix: --embedding alone says its type");
  }
}

}  // namespace

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const Recipe& recipe : AllRecipes()) names.push_back(recipe.name);
  return names;
}

std::string DescribeRecipe(const Recipe& recipe) {
  if (recipe.experts_only) {
    return fmt::format("experts {}, all else {}", NameOf(recipe.base), NameOf(recipe.embedding));
  }
  std::string text = NameOf(recipe.base);
  if (recipe.where == MoreBits::kHalf) {
    text += fmt::format(", attn_v and ffn_down of the outer layers {}", NameOf(recipe.more));
  } else if (recipe.where == MoreBits::kEverywhere) {
    text += fmt::format(", attn_v, attn_output and ffn_down {}", NameOf(recipe.more));
  }
  if (recipe.embedding != recipe.base)
    text += fmt::format(", embedding {}", NameOf(recipe.embedding));
  if (recipe.output != recipe.base) text += fmt::format(", output {}", NameOf(recipe.output));
  return text;
}

Recipe FindRecipe(std::string_view name) {
  const std::string lower = Lower(name);
  for (Recipe& recipe : AllRecipes()) {
    if (recipe.name == lower) return recipe;
  }
  throw Error(ErrorCode::kInvalidArgument, Field{"recipe"}, "there is no such recipe",
              fmt::format("{}", fmt::join(RecipeNames(), ", ")), Printable(name));
}

DType ParseQuantType(std::string_view name) {
  const std::optional<DType> type = DTypeFromName(name);
  if (type && kernels::CanSearch(*type)) return *type;
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto candidate = static_cast<DType>(i);
    if (!kernels::CanSearch(candidate)) continue;
    known += (known.empty() ? "" : ", ") + Lower(NameOf(candidate));
  }
  throw Error(ErrorCode::kInvalidArgument, "type of a tensor",
              "expected one of " + known + ", found '" + Printable(name) + "'");
}

TensorRule ParseTensorRule(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(ErrorCode::kInvalidArgument, Field{"tensor"},
                "expected PATTERN=TYPE, found '" + Printable(text) + "'");
  }
  return {std::string(text.substr(0, equals)), ParseQuantType(text.substr(equals + 1))};
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // The pieces between stars must follow each other; the first place for each is the best one.
  while (!pattern.empty()) {
    const size_t star = pattern.find('*');
    const std::string_view piece = pattern.substr(0, star);
    const size_t at = name.find(piece);
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + piece.size());
    pattern.remove_prefix(star == std::string_view::npos ? pattern.size() : star + 1);
  }
  return true;
}

bool IsQuantizable(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.num_dims >= 2 && name.ends_with(".weight") && name != "position_embd.weight" &&
         !name.ends_with("_norm.weight") && !name.ends_with("ffn_gate_inp.weight") &&
         !name.ends_with("ffn_gate_inp_shexp.weight");
}

std::vector<PlannedTensor> PlanTypes(const GgufFile& file, const QuantizeRules& rules) {
  CheckRules(file, rules);
  const TypePlanner planner(file, rules);
  std::vector<PlannedTensor> planned;
  for (const GgufTensor& tensor : file.tensors()) {
    // Integers are no weights and stay what they are.
    const DType kept = IsWeightType(tensor.dtype) ? DType::kF32 : tensor.dtype;
    PlannedTensor plan = {kept, kept};
    if (IsQuantizable(tensor)) {
      const auto fits = [&tensor](DType type) {
        return tensor.ne[0] % InfoOf(type).block_size == 0;
      };
      plan.wished = planner.Wish(tensor);
      plan.type = plan.wished;
      if (!fits(plan.type)) plan.type = FallbackOf(plan.type);
      if (!fits(plan.type)) plan.type = DType::kF16;
    }
    planned.push_back(plan);
  }
  return planned;
}

}  // namespace hearth
