#include "prepare/shapes/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hearth {
namespace {

// ProSparse's published threshold (Song et al. 2024).
constexpr double kProSparseThreshold = 0.01;

// A named shape; what it leaves out is the published configuration's.
struct NamedShape {
  const char* name;
  const char* architecture;
  int hidden, ffn, layers, heads, kv_heads, head_dim, vocab, context;
  double rope_base, norm_epsilon;
  FfnActivation activation = FfnActivation::kSilu;
  double threshold = 0;
  int experts = 0, experts_per_token = 0;
  bool tied = false;
  int window = 0;
};

constexpr auto kRelu = FfnActivation::kRelu;
constexpr auto kFatRelu = FfnActivation::kFatRelu;
constexpr auto kDRelu = FfnActivation::kDRelu;
constexpr auto kSilu = FfnActivation::kSilu;

// clang-format off
constexpr NamedShape kShapes[] = {
    {"llama2-7b",     "llama", 4096, 11008, 32, 32, 32, 128,  32000,   4096, 1e4, 1e-5},
    {"llama2-13b",    "llama", 5120, 13824, 40, 40, 40, 128,  32000,   4096, 1e4, 1e-5},
    {"llama2-70b",    "llama", 8192, 28672, 80, 64,  8, 128,  32000,   4096, 1e4, 1e-5},
    {"mistral-7b",    "llama", 4096, 14336, 32, 32,  8, 128,  32000,  32768, 1e4, 1e-5},
    {"llama3-8b",     "llama", 4096, 14336, 32, 32,  8, 128, 128256,   8192, 5e5, 1e-5},
    {"qwen2-1.5b",    "qwen2", 1536,  8960, 28, 12,  2, 128, 151936, 131072, 1e6, 1e-6,
     kSilu, 0, 0, 0, true},
    {"qwen2-7b",      "qwen2", 3584, 18944, 28, 28,  4, 128, 152064, 131072, 1e6, 1e-6},
    {"mixtral-8x7b",  "llama", 4096, 14336, 32, 32,  8, 128,  32000,  32768, 1e6, 1e-5,
     kSilu, 0, 8, 2},
    {"qwen3-30b-a3b", "qwen3moe", 2048, 768, 48, 32, 4, 128, 151936,  40960, 1e6, 1e-6,
     kSilu, 0, 128, 8},
    {"bamboo-7b",     "llama", 4096, 14336, 32, 32,  8, 128,  32064,  32768, 1e4, 1e-5, kDRelu},
    {"turbosparse-mistral-7b",
                      "llama", 4096, 14336, 32, 32,  8, 128,  32064,  32768, 1e4, 1e-5, kDRelu},
    {"prosparse-7b",  "llama", 4096, 11008, 32, 32, 32, 128,  32000,   4096, 1e4, 1e-5,
     kFatRelu, kProSparseThreshold},
    {"prosparse-13b", "llama", 5120, 13824, 40, 40, 40, 128,  32000,   4096, 1e4, 1e-5,
     kFatRelu, kProSparseThreshold},
    {"relu-llama-7b", "llama", 4096, 11008, 32, 32, 32, 128,  32000,   4096, 1e4, 1e-5, kRelu},
    {"turbosparse-mixtral-47b",
                      "llama", 4096, 14336, 32, 32,  8, 128,  32064,  32768, 1e6, 1e-5,
     kDRelu, 0, 8, 2},
    {"smallthinker-4b",  "smallthinker", 1536, 768, 32, 12, 2, 128, 151936, 32768, 1.5e6, 1e-6,
     kRelu, 0, 32, 4, true},
    {"smallthinker-21b", "smallthinker", 2560, 768, 52, 28, 4, 128, 151936, 16384, 1.5e6, 1e-6,
     kRelu, 0, 64, 6, false, 4096},
};
// clang-format on

// Names that can be planned and not made: their FFNs have two matrices and biases.
// clang-format off
constexpr NamedShape kTwoMatrixShapes[] = {
    {"opt-6.7b",   "opt",     4096, 16384, 32,  32, 32, 128, 50272, 2048, 1e4, 1e-5, kRelu},
    {"opt-13b",    "opt",     5120, 20480, 40,  40, 40, 128, 50272, 2048, 1e4, 1e-5, kRelu},
    {"opt-30b",    "opt",     7168, 28672, 48,  56, 56, 128, 50272, 2048, 1e4, 1e-5, kRelu},
    {"opt-66b",    "opt",     9216, 36864, 64,  72, 72, 128, 50272, 2048, 1e4, 1e-5, kRelu},
    {"opt-175b",   "opt",    12288, 49152, 96,  96, 96, 128, 50272, 2048, 1e4, 1e-5, kRelu},
    {"falcon-40b", "falcon",  8192, 32768, 60, 128,  8,  64, 65024, 2048, 1e4, 1e-5, kRelu},
};
// clang-format on

// Why a name cannot be made; null for others.
const char* ReasonAgainst(std::string_view name) {
  for (const NamedShape& line : kTwoMatrixShapes) {
    if (line.name == name) return "its FFN has two matrices instead of a gated three";
  }
  return nullptr;
}

ModelShape ToShape(const NamedShape& line) {
  ModelShape shape;
  shape.name = line.name;
  shape.architecture = line.architecture;
  shape.hidden_size = line.hidden;
  shape.intermediate_size = line.ffn;
  shape.num_layers = line.layers;
  shape.num_heads = line.heads;
  shape.num_kv_heads = line.kv_heads;
  shape.head_dim = line.head_dim;
  shape.vocab_size = line.vocab;
  shape.context_length = line.context;
  shape.rope_base = line.rope_base;
  shape.norm_epsilon = line.norm_epsilon;
  shape.activation = line.activation;
  shape.threshold = line.threshold;
  shape.num_experts = line.experts;
  shape.num_experts_per_token = line.experts_per_token;
  shape.tied_embeddings = line.tied;
  shape.sliding_window = line.window;
  shape.qkv_bias = shape.architecture == "qwen2";
  shape.qk_norm = shape.architecture == "qwen3moe";
  return shape;
}

// Upper bounds as in model/model_spec.cc: what passes here is read back without complaint.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxContext = int64_t{1} << 31;
constexpr int64_t kMaxShapeHeadDim = 4096;
constexpr int64_t kMaxExperts = 1 << 16;

class ShapeChecker {
 public:
  explicit ShapeChecker(const std::string& where) : where_(where) {}

  void Range(const char* field, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) {
      Fail(field, fmt::format("{} to {}", low, high), fmt::format("{}", value));
    }
  }
  void Holds(bool condition, const char* field, const std::string& expected,
             const std::string& found) const {
    if (!condition) Fail(field, expected, found);
  }

 private:
  [[noreturn]] void Fail(const char* field, const std::string& expected,
                         const std::string& found) const {
    throw Error(ErrorCode::kInvalidArgument, where_, field, expected, found);
  }

  const std::string& where_;
};

void CheckSizes(const ShapeChecker& check, const ModelShape& shape) {
  check.Range("hidden_size", shape.hidden_size, 1, kMaxWidth);
  check.Range("intermediate_size", shape.intermediate_size, 1, kMaxWidth);
  check.Range("num_layers", shape.num_layers, 1, kMaxLayers);
  check.Range("num_heads", shape.num_heads, 1, kMaxWidth);
  check.Range("num_kv_heads", shape.num_kv_heads, 1, shape.num_heads);
  check.Holds(shape.num_heads % shape.num_kv_heads == 0, "num_kv_heads",
              fmt::format("a divisor of num_heads {}", shape.num_heads),
              fmt::format("{}", shape.num_kv_heads));
  check.Range("head_dim", shape.head_dim, 2, kMaxShapeHeadDim);
  check.Holds(shape.head_dim % 2 == 0, "head_dim", "an even number (RoPE rotates pairs)",
              fmt::format("{}", shape.head_dim));
  check.Range("vocab_size", shape.vocab_size, kMinVocabSize, kMaxVocab);
  check.Range("context_length", shape.context_length, 1, kMaxContext);
  check.Range("sliding_window", shape.sliding_window, 0, kMaxContext);
}

void CheckNumbers(const ShapeChecker& check, const ModelShape& shape) {
  // They are stored as float32, where a huge base would be infinity and a tiny one zero.
  check.Holds(shape.rope_base >= 1 && shape.rope_base <= 1e30, "rope_base", "1 to 1e30",
              fmt::format("{}", shape.rope_base));
  check.Holds(shape.norm_epsilon >= 1e-30 && shape.norm_epsilon <= 1, "norm_epsilon", "1e-30 to 1",
              fmt::format("{}", shape.norm_epsilon));
  check.Holds(std::abs(shape.threshold) <= 1e30, "threshold", "-1e30 to 1e30",
              fmt::format("{}", shape.threshold));
  check.Holds(shape.activation == FfnActivation::kFatRelu || shape.threshold == 0, "threshold",
              "none but with activation fatrelu", fmt::format("{}", shape.threshold));
}

void CheckExperts(const ShapeChecker& check, const ModelShape& shape) {
  check.Range("num_experts", shape.num_experts, 0, kMaxExperts);
  check.Range("num_experts_per_token", shape.num_experts_per_token, shape.num_experts == 0 ? 0 : 1,
              shape.num_experts);
  if (shape.architecture == "qwen3moe" || shape.architecture == "smallthinker") {
    check.Holds(shape.num_experts > 0, "num_experts",
                fmt::format("at least 1 for arch {}", shape.architecture), "0");
  } else if (shape.architecture != "llama") {
    check.Holds(shape.num_experts == 0, "num_experts",
                fmt::format("0 for arch {}", shape.architecture),
                fmt::format("{}", shape.num_experts));
  }
}

[[noreturn]] void ThrowUnknown(const char* field, std::string_view name,
                               const std::vector<std::string>& known) {
  throw Error(ErrorCode::kNotFound, Field{field}, "name of a shape",
              fmt::format("a JSON file or one of {}", fmt::join(known, ", ")),
              "'" + Printable(name) + "'");
}

bool IsShapePath(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const NamedShape& line : kShapes) names.emplace_back(line.name);
  return names;
}

FfnActivation UsualActivation(std::string_view architecture) {
  return architecture == "smallthinker" ? FfnActivation::kRelu : FfnActivation::kSilu;
}

ModelShape FindShape(std::string_view name) {
  for (const NamedShape& line : kShapes) {
    if (line.name == name) return ToShape(line);
  }
  if (const char* reason = ReasonAgainst(name)) {
    throw Error(ErrorCode::kUnsupported, Field{"shape"},
                fmt::format("{} cannot be made yet: {}", name, reason));
  }
  ThrowUnknown("shape", name, ShapeNames());
}

std::vector<std::string> PlannedShapeNames() {
  std::vector<std::string> names = ShapeNames();
  for (const NamedShape& line : kTwoMatrixShapes) names.emplace_back(line.name);
  return names;
}

ModelShape FindPlannedShape(std::string_view name) {
  for (const NamedShape& line : kShapes) {
    if (line.name == name) return ToShape(line);
  }
  for (const NamedShape& line : kTwoMatrixShapes) {
    if (line.name != name) continue;
    ModelShape shape = ToShape(line);
    shape.gated_ffn = false;
    return shape;
  }
  ThrowUnknown("model", name, PlannedShapeNames());
}

ModelShape ResolveShape(const std::string& name_or_path) {
  return IsShapePath(name_or_path) ? LoadShape(name_or_path) : FindShape(name_or_path);
}

ModelShape ResolvePlannedShape(const std::string& name_or_path) {
  return IsShapePath(name_or_path) ? LoadShape(name_or_path) : FindPlannedShape(name_or_path);
}

void ValidateShape(const ModelShape& shape, const std::string& where) {
  const ShapeChecker check(where);
  const std::string& arch = shape.architecture;
  constexpr std::string_view kArchs[] = {"llama", "qwen2", "qwen3", "qwen3moe", "smallthinker"};
  check.Holds(std::find(std::begin(kArchs), std::end(kArchs), arch) != std::end(kArchs), "arch",
              "llama, mistral, mixtral, qwen2, qwen3, qwen3moe or smallthinker",
              "'" + Printable(arch) + "'");
  CheckSizes(check, shape);
  CheckNumbers(check, shape);
  CheckExperts(check, shape);
}

}  // namespace hearth
