// Shapes from JSON (shapes.h): the text is somebody else's, so every key, type and range is
// checked.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/json_object.h"
#include "plan/json_reader.h"
#include "prepare/shapes/shapes.h"
#include "storage/text_file.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

using nlohmann::json;

// A shape is a few hundred bytes; a larger file is something else given by mistake.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

// "[json.exception.parse_error.101] parse error at ..." -> "parse error at ..."
std::string_view WithoutTag(std::string_view message) {
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

json ParseShapeJson(std::string_view text, const std::string& file_name) {
  try {
    json document = ReadJsonDocument(text, file_name, ErrorCode::kInvalidArgument);
    return document.is_discarded() ? json::parse(text) : document;  // which says where
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, file_name,
                "not valid JSON: " + Printable(WithoutTag(error.what()), 200));
  }
}

int64_t IntOr(JsonObject& object, const char* key, int64_t fallback) {
  return object.Has(key) ? object.Int(key) : fallback;
}
std::string TextOr(JsonObject& object, const char* key, const std::string& fallback) {
  return object.Has(key) ? object.Text(key) : fallback;
}

std::string ReadArchitecture(JsonObject& object) {
  const std::string arch = TextOr(object, "arch", "llama");
  return arch == "mistral" || arch == "mixtral" ? "llama" : arch;
}

FfnActivation ReadActivation(JsonObject& object, const std::string& arch) {
  const std::string name = TextOr(object, "activation", FfnActivationName(UsualActivation(arch)));
  const auto activation = FfnActivationFromName(name);
  if (activation && IsCommonActivation(*activation)) return *activation;
  object.Fail("activation", std::string(kCommonActivationNames), name);
}

// hidden_size / num_heads, where that is what it must be.
int64_t ReadHeadDim(JsonObject& object, const ModelShape& shape) {
  if (object.Has("head_dim")) return object.Int("head_dim");
  if (shape.num_heads < 1) return 0;  // ValidateShape speaks of num_heads first
  if (shape.hidden_size % shape.num_heads != 0) {
    object.Fail(
        "num_heads",
        fmt::format("a divisor of hidden_size {}, or head_dim to be given", shape.hidden_size),
        shape.num_heads);
  }
  return shape.hidden_size / shape.num_heads;
}

}  // namespace

ModelShape ParseShape(std::string_view text, const std::string& file_name) {
  const json document = ParseShapeJson(text, file_name);
  JsonObject object(document, file_name, ErrorCode::kInvalidArgument);
  ModelShape shape;
  shape.name = TextOr(object, "name", std::filesystem::path(file_name).stem().string());
  shape.architecture = ReadArchitecture(object);
  shape.hidden_size = object.Int("hidden_size");
  shape.intermediate_size = object.Int("intermediate_size");
  shape.num_layers = object.Int("num_layers");
  shape.num_heads = object.Int("num_heads");
  shape.num_kv_heads = IntOr(object, "num_kv_heads", shape.num_heads);
  shape.vocab_size = object.Int("vocab_size");
  shape.head_dim = ReadHeadDim(object, shape);
  shape.context_length = IntOr(object, "context_length", shape.context_length);
  shape.rope_base = object.NumberOr("rope_base", shape.rope_base);
  shape.activation = ReadActivation(object, shape.architecture);
  shape.threshold = object.NumberOr("threshold", 0);
  shape.num_experts = IntOr(object, "num_experts", 0);
  shape.num_experts_per_token = IntOr(object, "num_experts_per_token", 0);
  shape.tied_embeddings = object.Has("tied_embeddings") && object.Bool("tied_embeddings");
  shape.sliding_window = IntOr(object, "sliding_window", 0);
  shape.norm_epsilon = object.NumberOr("norm_epsilon", shape.norm_epsilon);
  shape.qkv_bias = shape.architecture == "qwen2";
  shape.qk_norm = shape.architecture == "qwen3" || shape.architecture == "qwen3moe";
  if (shape.activation == FfnActivation::kFatRelu && !object.Has("threshold")) {
    object.Fail("threshold", "a number, which fatrelu needs", nullptr);
  }
  object.Finish();
  ValidateShape(shape, file_name);
  return shape;
}

ModelShape LoadShape(const std::string& path) {
  const std::string text = ReadText(path, {.most_bytes = kMaxFileBytes, .what = "a shape file"});
  return ParseShape(text, path);
}

}  // namespace hearth
