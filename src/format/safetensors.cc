#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "format/foreign_file.h"
#include "plan/json_reader.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

// Headers of the largest models have some MiB. Parsed JSON takes some ten times as much.
constexpr uint64_t kMaxHeaderBytes = uint64_t{32} << 20;
constexpr size_t kMaxDims = 8;
constexpr uint64_t kMaxBytes = uint64_t{1} << 62;
constexpr std::string_view kMetadataName = "__metadata__";

struct TypeName {
  const char* name;
  DType dtype;
  bool is_float8 = false;
};
constexpr TypeName kTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"F64", DType::kF64}, {"I8", DType::kI8},   {"I16", DType::kI16},
    {"I32", DType::kI32}, {"I64", DType::kI64}, {"F8_E4M3", DType::kI8, true}};

class HeaderReader {
 public:
  explicit HeaderReader(const BlockReader& file) : file_(file) {}

  SafetensorsHeader Read() {
    const Json json = ReadJson();
    SafetensorsHeader header;
    for (const auto& [name, value] : json.items()) {
      if (name != kMetadataName) header.tensors.push_back(ReadTensor(name, value));
    }
    CheckOverlaps(header.tensors);
    return header;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what, const std::string& expected,
                           const std::string& found, ErrorCode code = ErrorCode::kCorrupt) const {
    throw Error(code, file_.name(), what, expected, found);
  }

  // The same, where a file of another kind would be a better explanation.
  [[noreturn]] void RefuseForeign(const std::string& what, const std::string& expected,
                                  const std::string& found) const {
    const auto foreign = RecognizeForeignFile(ReadHead(file_), file_.size_bytes());
    if (foreign) Refuse("header", "a safetensors file", foreign->found, foreign->code);
    Refuse(what, expected, found);
  }

  Json ReadJson() {
    uint64_t json_bytes = 0;
    const uint64_t size = file_.size_bytes();
    if (size < sizeof(json_bytes)) RefuseForeign("size", "at least 8 bytes", std::to_string(size));
    file_.ReadAt(0, std::as_writable_bytes(std::span(&json_bytes, 1)));
    const uint64_t most = std::min(size - sizeof(json_bytes), kMaxHeaderBytes);
    if (json_bytes > most) {
      const std::string limit = fmt::format("at most {}", most);
      if (json_bytes >= size) {
        RefuseForeign("length of the header", limit, std::to_string(json_bytes));
      }
      Refuse("length of the header", limit, std::to_string(json_bytes));
    }
    data_begin_ = sizeof(json_bytes) + json_bytes;
    std::string text(static_cast<size_t>(json_bytes), '\0');
    file_.ReadAt(sizeof(json_bytes), std::as_writable_bytes(std::span(text)));
    Json json = ReadJsonDocument(text, file_.name(), ErrorCode::kCorrupt);
    if (!json.is_object()) Refuse("header", "a JSON object", "something else");
    return json;
  }

  SafetensorsTensor ReadTensor(const std::string& name, const Json& json) const {
    const std::string where = fmt::format("tensor '{}'", Printable(name));
    if (!json.is_object()) Refuse(where, "a JSON object", json.type_name());
    SafetensorsTensor tensor;
    tensor.name = name;
    const TypeName& type = ReadType(where, json);
    tensor.dtype = type.dtype;
    tensor.is_float8 = type.is_float8;
    tensor.shape = ReadNumbers(where, json, "shape");
    if (tensor.shape.size() > kMaxDims) {
      Refuse(where + ": dimensions", fmt::format("at most {}", kMaxDims),
             std::to_string(tensor.shape.size()));
    }
    uint64_t bytes = InfoOf(tensor.dtype).block_bytes;
    for (const uint64_t n : tensor.shape) {
      if (n == 0 || n > kMaxBytes / bytes) {
        Refuse(where + ": shape", "at least 1 each and less than 2^62 bytes", std::to_string(n));
      }
      bytes *= n;
    }
    const std::vector<uint64_t> range = ReadNumbers(where, json, "data_offsets");
    const uint64_t data_bytes = file_.size_bytes() - data_begin_;
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes) {
      Refuse(where + ": data_offsets", fmt::format("a range inside {} bytes", data_bytes),
             range.size() == 2 ? fmt::format("{} to {}", range[0], range[1]) : "another number");
    }
    if (range[1] - range[0] != bytes) {
      Refuse(where + ": data_offsets", fmt::format("{} bytes, as its shape says", bytes),
             std::to_string(range[1] - range[0]));
    }
    tensor.offset = data_begin_ + range[0];
    tensor.bytes = bytes;
    return tensor;
  }

  const TypeName& ReadType(const std::string& where, const Json& json) const {
    const auto found = json.find("dtype");
    if (found == json.end() || !found->is_string()) Refuse(where + ": dtype", "a name", "none");
    const auto& name = found->get_ref<const std::string&>();
    for (const TypeName& type : kTypes) {
      if (name == type.name) return type;
    }
    Refuse(where + ": dtype", "F32, F16, BF16, F64, F8_E4M3 or I8 to I64",
           "'" + Printable(name) + "'", ErrorCode::kUnsupported);
  }

  std::vector<uint64_t> ReadNumbers(const std::string& where, const Json& json,
                                    const char* key) const {
    const auto found = json.find(key);
    const bool is_list = found != json.end() && found->is_array();
    if (!is_list || !std::all_of(found->begin(), found->end(),
                                 [](const Json& n) { return n.is_number_unsigned(); })) {
      Refuse(fmt::format("{}: {}", where, key), "a list of numbers", "something else");
    }
    return found->get<std::vector<uint64_t>>();
  }

  void CheckOverlaps(const std::vector<SafetensorsTensor>& tensors) const {
    std::vector<const SafetensorsTensor*> by_offset;
    for (const SafetensorsTensor& tensor : tensors) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const SafetensorsTensor& before = *by_offset[i - 1];
      if (by_offset[i]->offset < before.offset + before.bytes) {
        Refuse(fmt::format("tensor '{}'", Printable(by_offset[i]->name)), "bytes of its own",
               fmt::format("some of tensor '{}'", Printable(before.name)));
      }
    }
  }

  const BlockReader& file_;
  uint64_t data_begin_ = 0;
};

}  // namespace

SafetensorsHeader ReadSafetensorsHeader(const BlockReader& file) {
  return HeaderReader(file).Read();
}

}  // namespace hearth
