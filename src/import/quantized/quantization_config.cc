#include "import/quantized/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"

namespace hearth {
namespace {

constexpr const char* kKey = "quantization_config";
constexpr uint64_t kMaxGroup = uint64_t{1} << 24;

[[noreturn]] void Refuse(const PublishedJson& json, const std::string& what,
                         const std::string& expected, const std::string& found) {
  throw Error(
      ErrorCode::kUnsupported, json.path(), std::string(kKey) + ": " + what,
      expected + "; a GGUF file of the model, or the folder with float weights, can be read",
      "'" + Printable(found) + "'");
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void ExpectText(const PublishedJson& json, const char* key, std::string_view expected) {
  const std::string found = Lower(json.Text(key, std::string(expected)));
  if (found != expected) Refuse(json, key, std::string(expected), found);
}

// The first of two keys that is there: tools name them differently.
int64_t IntOf(const PublishedJson& json, const char* key, const char* other, int64_t fallback) {
  return json.Has(key) ? json.Int(key) : json.Int(other, fallback);
}

// -1 is all inputs.
uint64_t GroupSize(const PublishedJson& json, const char* key) {
  const nlohmann::json* found = json.Find(key);
  if (found == nullptr || (found->is_number_integer() && *found == -1)) return 0;
  const int64_t size = json.Int(key);
  if (size < 1 || static_cast<uint64_t>(size) > kMaxGroup) {
    throw Error(ErrorCode::kCorrupt, json.path(), key, fmt::format("-1 or 1 to {}", kMaxGroup),
                std::to_string(size));
  }
  return static_cast<uint64_t>(size);
}

void ReadGptq(const PublishedJson& json, PublishedQuantization* out) {
  out->bits = static_cast<int>(std::min<int64_t>(json.Int("bits"), 64));
  constexpr int kBits[] = {2, 3, 4, 8};
  if (std::find(std::begin(kBits), std::end(kBits), out->bits) == std::end(kBits)) {
    Refuse(json, "bits", "2, 3, 4 or 8", std::to_string(out->bits));
  }
  out->group_size = GroupSize(json, "group_size");
  out->is_symmetric = json.Bool("sym", true);
  if (json.Bool("is_marlin_format", false)) Refuse(json, "is_marlin_format", "false", "true");
  ExpectText(json, "pack_dtype", "int32");
  const std::string format = Lower(json.Text("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") {
    Refuse(json, "checkpoint_format", "gptq or gptq_v2", format);
  }
  out->zeros_less = format == "gptq" ? 1 : 0;
}

void ReadAwq(const PublishedJson& json, PublishedQuantization* out) {
  out->bits = static_cast<int>(std::min<int64_t>(IntOf(json, "bits", "w_bit", 4), 64));
  if (out->bits != 4) Refuse(json, "bits", "4", std::to_string(out->bits));
  out->group_size = GroupSize(json, json.Has("group_size") ? "group_size" : "q_group_size");
  ExpectText(json, "version", "gemm");
  if (!json.Bool("zero_point", true)) Refuse(json, "zero_point", "true", "false");
}

void ReadBlocks(const PublishedJson& json, const char* key, PublishedQuantization* out) {
  const nlohmann::json* blocks = json.Find(key);
  if (blocks == nullptr) return;
  const auto is_size = [](const nlohmann::json& n) {
    return n.is_number_unsigned() && n >= 1 && n <= kMaxGroup;
  };
  if (!blocks->is_array() || blocks->size() != 2 || !is_size((*blocks)[0]) ||
      !is_size((*blocks)[1])) {
    throw Error(ErrorCode::kCorrupt, json.path(), key, "two numbers of 1 or more",
                "something else");
  }
  out->block_rows = (*blocks)[0].get<uint64_t>();
  out->block_cols = (*blocks)[1].get<uint64_t>();
}

void ReadFp8(const PublishedJson& json, PublishedQuantization* out) {
  ExpectText(json, "fmt", "e4m3");
  ReadBlocks(json, "weight_block_size", out);
}

// Shapes of tensors say most.
void ReadCompressed(const PublishedJson& json, PublishedQuantization* out) {
  const std::string format = Lower(json.Text("format", "pack-quantized"));
  constexpr std::string_view kFormats[] = {"pack-quantized", "int-quantized", "float-quantized",
                                           "naive-quantized"};
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats)) {
    Refuse(json, "format", "pack-quantized, int-quantized or float-quantized", format);
  }
  const std::string sparsity = json.Object("sparsity_config").Text("format", "dense");
  if (sparsity != "dense") Refuse(json, "sparsity_config", "dense", sparsity);
  const nlohmann::json* transforms = json.Find("transform_config");
  if (transforms != nullptr && !transforms->empty()) {
    Refuse(json, "transform_config", "none", "one");
  }
  const PublishedJson groups = json.Object("config_groups");
  for (const auto& [name, group] : groups.json().items()) {
    if (!group.is_object()) continue;
    const PublishedJson weights = PublishedJson(json.path(), group).Object("weights");
    ReadBlocks(weights, "block_structure", out);
  }
}

}  // namespace

PublishedQuantization ReadPublishedQuantization(const PublishedJson& config) {
  PublishedQuantization out;
  if (!config.Has(kKey)) return out;
  const PublishedJson json = config.Object(kKey);
  out.name = Lower(json.Text("quant_method", ""));
  if (out.name == "gptq") {
    out.method = QuantMethod::kGptq;
    ReadGptq(json, &out);
  } else if (out.name == "awq") {
    out.method = QuantMethod::kAwq;
    ReadAwq(json, &out);
  } else if (out.name == "fp8" || out.name == "fbgemm_fp8") {
    out.method = QuantMethod::kFp8;
    ReadFp8(json, &out);
  } else if (out.name == "compressed-tensors") {
    out.method = QuantMethod::kCompressedTensors;
    ReadCompressed(json, &out);
  } else {
    Refuse(json, "quant_method", "gptq, awq, fp8, fbgemm_fp8 or compressed-tensors", out.name);
  }
  return out;
}

}  // namespace hearth
