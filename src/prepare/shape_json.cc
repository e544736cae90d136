// Shapes from JSON (shapes.h): the text is somebody else's, so every key, type and range is
// checked.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "prepare/shapes.h"
#include "storage/block_reader.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 18> kKeys = {
    "name",         "arch",           "hidden_size",    "intermediate_size",
    "num_layers",   "num_heads",      "num_kv_heads",   "head_dim",
    "vocab_size",   "rope_base",      "context_length", "activation",
    "threshold",    "num_experts",    "sliding_window", "num_experts_per_token",
    "norm_epsilon", "tied_embeddings"};

// A shape is a few hundred bytes; a larger file is something else given by mistake.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

class ShapeObject {
 public:
  ShapeObject(std::string_view text, const std::string& file_name) : file_name_(file_name) {
    try {
      object_ = json::parse(text, RepeatedKeyCheck());
    } catch (const json::exception& error) {
      throw Error(ErrorCode::kInvalidArgument, file_name_,
                  "not valid JSON: " + Printable(StripTag(error.what()), 200));
    }
    if (!object_.is_object()) Fail("shape", "a JSON object", object_);
    for (const auto& [key, value] : object_.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        throw Error(ErrorCode::kInvalidArgument, file_name_,
                    fmt::format("unknown key '{}'", Printable(key)));
      }
    }
  }

  bool Has(const char* key) const { return object_.contains(key); }

  int64_t Int(const char* key) const {
    if (!Has(key)) {
      throw Error(ErrorCode::kInvalidArgument, file_name_, fmt::format("{} is missing", key));
    }
    const json& value = object_.at(key);
    // Anything over 2^63 would wrap into a negative number; both are out of every range.
    if (!value.is_number_integer()) Fail(key, "an integer", value);
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) {
      Fail(key, "an integer below 2^63", value);
    }
    return value.get<int64_t>();
  }
  int64_t Int(const char* key, int64_t fallback) const { return Has(key) ? Int(key) : fallback; }
  double Number(const char* key, double fallback) const {
    if (!Has(key)) return fallback;
    if (!object_.at(key).is_number()) Fail(key, "a number", object_.at(key));
    return object_.at(key).get<double>();
  }
  bool Bool(const char* key, bool fallback) const {
    if (!Has(key)) return fallback;
    if (!object_.at(key).is_boolean()) Fail(key, "true or false", object_.at(key));
    return object_.at(key).get<bool>();
  }
  std::string String(const char* key, const std::string& fallback) const {
    if (!Has(key)) return fallback;
    if (!object_.at(key).is_string()) Fail(key, "a string", object_.at(key));
    return object_.at(key).get<std::string>();
  }

  [[noreturn]] void Fail(const char* key, std::string_view expected, const json& found) const {
    throw Error(ErrorCode::kInvalidArgument, file_name_, key, expected,
                Printable(found.dump(-1, ' ', true, json::error_handler_t::replace)));
  }

 private:
  // The library keeps the last of two equal keys without a word.
  json::parser_callback_t RepeatedKeyCheck() const {
    return [this, seen = std::set<std::string>()](int depth, json::parse_event_t event,
                                                  json& parsed) mutable {
      if (event != json::parse_event_t::key || depth != 1) return true;
      if (!seen.insert(parsed.get<std::string>()).second) {
        throw Error(ErrorCode::kInvalidArgument, file_name_,
                    fmt::format("key '{}' is there twice", Printable(parsed.get<std::string>())));
      }
      return true;
    };
  }

  // "[json.exception.parse_error.101] parse error at ..." -> "parse error at ..."
  static std::string_view StripTag(std::string_view message) {
    const size_t end = message.find("] ");
    return end == std::string_view::npos ? message : message.substr(end + 2);
  }

  const std::string& file_name_;
  json object_;
};

std::string ReadArchitecture(const ShapeObject& object) {
  const std::string arch = object.String("arch", "llama");
  return arch == "mistral" || arch == "mixtral" ? "llama" : arch;
}

FfnActivation ReadActivation(const ShapeObject& object) {
  const std::string name = object.String("activation", "silu");
  const auto activation = FfnActivationFromName(name);
  // Thresholds of SiLU are calibrated for weights, not made with a shape.
  if (activation && *activation != FfnActivation::kThresholdedSilu) return *activation;
  object.Fail("activation", "silu, relu, fatrelu or drelu", name);
}

// hidden_size / num_heads, where that is what it must be.
int64_t ReadHeadDim(const ShapeObject& object, const ModelShape& shape) {
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
  const ShapeObject object(text, file_name);
  ModelShape shape;
  shape.name = object.String("name", std::filesystem::path(file_name).stem().string());
  shape.architecture = ReadArchitecture(object);
  shape.hidden_size = object.Int("hidden_size");
  shape.intermediate_size = object.Int("intermediate_size");
  shape.num_layers = object.Int("num_layers");
  shape.num_heads = object.Int("num_heads");
  shape.num_kv_heads = object.Int("num_kv_heads", shape.num_heads);
  shape.vocab_size = object.Int("vocab_size");
  shape.head_dim = ReadHeadDim(object, shape);
  shape.context_length = object.Int("context_length", shape.context_length);
  shape.rope_base = object.Number("rope_base", shape.rope_base);
  shape.activation = ReadActivation(object);
  shape.threshold = object.Number("threshold", 0);
  shape.num_experts = object.Int("num_experts", 0);
  shape.num_experts_per_token = object.Int("num_experts_per_token", 0);
  shape.tied_embeddings = object.Bool("tied_embeddings", false);
  shape.sliding_window = object.Int("sliding_window", 0);
  shape.norm_epsilon = object.Number("norm_epsilon", shape.norm_epsilon);
  shape.qkv_bias = shape.architecture == "qwen2";
  shape.qk_norm = shape.architecture == "qwen3" || shape.architecture == "qwen3moe";
  if (shape.activation == FfnActivation::kFatRelu && !object.Has("threshold")) {
    object.Fail("threshold", "a number, which fatrelu needs", nullptr);
  }
  ValidateShape(shape, file_name);
  return shape;
}

ModelShape LoadShape(const std::string& path) {
  const std::unique_ptr<BlockReader> reader = OpenFileReader(path);
  if (reader->size_bytes() > kMaxFileBytes) {
    throw Error(ErrorCode::kInvalidArgument, path, "size of a shape file",
                fmt::format("at most {} bytes", kMaxFileBytes),
                fmt::format("{}", reader->size_bytes()));
  }
  std::string text(reader->size_bytes(), '\0');
  reader->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return ParseShape(text, path);
}

}  // namespace hearth
