#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "format/gguf.h"

namespace hearth {
namespace {

// The type as a message shows it: "uint32", "array of string".
std::string DescribeType(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return GgufTypeName(value.type);
  return fmt::format("array of {}", GgufTypeName(array->element_type));
}

[[noreturn]] void Refuse(const GgufMetadata& metadata, std::string_view key,
                         std::string_view expected, const std::string& found) {
  throw Error(ErrorCode::kCorrupt, metadata.file_name(), fmt::format("key '{}'", Printable(key)),
              expected, found);
}

[[noreturn]] void ThrowMissing(const GgufMetadata& metadata, std::string_view key) {
  throw Error(ErrorCode::kNotFound, metadata.file_name(),
              fmt::format("key '{}' is missing", Printable(key)));
}

// The items of an array as To, by Cast(item) -> std::optional<To> for every number type.
template <typename To, typename Cast>
std::vector<To> CastItems(const GgufMetadata& metadata, std::string_view key,
                          const GgufValue& value, const char* expected, Cast cast) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr || array->element_type == GgufType::kBool) {
    Refuse(metadata, key, expected, DescribeType(value));
  }
  return std::visit(
      [&](const auto& items) -> std::vector<To> {
        using From = typename std::decay_t<decltype(items)>::value_type;
        std::vector<To> out;
        if constexpr (std::is_arithmetic_v<From>) {
          out.reserve(items.size());
          for (const From item : items) {
            const std::optional<To> converted = cast(item);
            if (!converted) {
              Refuse(metadata, key, expected, fmt::format("{} in it", item));
            }
            out.push_back(*converted);
          }
        } else {
          Refuse(metadata, key, expected, DescribeType(value));
        }
        return out;
      },
      array->items);
}

GgufValue MakeArray(GgufType element_type, decltype(GgufArray::items) items) {
  return {GgufType::kArray, GgufArray{element_type, std::move(items)}};
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "unknown";
}

bool GgufMetadata::Has(std::string_view key) const { return FindOrNull(key) != nullptr; }

const GgufValue* GgufMetadata::FindOrNull(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<uint64_t> GgufMetadata::FindUint(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* u = std::get_if<uint64_t>(&value->value)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value->value)) {
    if (*i >= 0) return static_cast<uint64_t>(*i);
    Refuse(*this, key, "a number of 0 or more", fmt::format("{}", *i));
  }
  Refuse(*this, key, "an integer", DescribeType(*value));
}

std::optional<int64_t> GgufMetadata::FindInt(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* i = std::get_if<int64_t>(&value->value)) return *i;
  if (const auto* u = std::get_if<uint64_t>(&value->value)) {
    if (*u <= uint64_t{INT64_MAX}) return static_cast<int64_t>(*u);
    Refuse(*this, key, "a number below 2^63", fmt::format("{}", *u));
  }
  Refuse(*this, key, "an integer", DescribeType(*value));
}

std::optional<double> GgufMetadata::FindFloat(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* f = std::get_if<double>(&value->value)) return *f;
  if (const auto* u = std::get_if<uint64_t>(&value->value)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&value->value)) return static_cast<double>(*i);
  Refuse(*this, key, "a number", DescribeType(*value));
}

std::optional<bool> GgufMetadata::FindBool(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* b = std::get_if<bool>(&value->value)) return *b;
  Refuse(*this, key, "a bool", DescribeType(*value));
}

const std::string* GgufMetadata::FindString(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return nullptr;
  if (const auto* s = std::get_if<std::string>(&value->value)) return s;
  Refuse(*this, key, "a string", DescribeType(*value));
}

const std::vector<std::string>* GgufMetadata::FindStrings(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return nullptr;
  if (const auto* array = std::get_if<GgufArray>(&value->value)) {
    if (const auto* items = std::get_if<std::vector<std::string>>(&array->items)) return items;
  }
  Refuse(*this, key, "an array of string", DescribeType(*value));
}

std::optional<std::vector<int64_t>> GgufMetadata::FindInts(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  const auto cast = [](auto item) -> std::optional<int64_t> {
    using From = decltype(item);
    if constexpr (std::is_floating_point_v<From>) {
      return std::nullopt;
    } else if constexpr (std::is_same_v<From, uint64_t>) {
      if (item > uint64_t{INT64_MAX}) return std::nullopt;
    }
    return static_cast<int64_t>(item);
  };
  // An empty array of floats has no item that could be refused one by one.
  if (const auto* array = std::get_if<GgufArray>(&value->value);
      array != nullptr &&
      (array->element_type == GgufType::kFloat32 || array->element_type == GgufType::kFloat64)) {
    Refuse(*this, key, "an array of integers", DescribeType(*value));
  }
  return CastItems<int64_t>(*this, key, *value, "an array of integers", cast);
}

std::optional<std::vector<float>> GgufMetadata::FindFloats(std::string_view key) const {
  const GgufValue* value = FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  const auto cast = [](auto item) -> std::optional<float> {
    if constexpr (std::is_same_v<decltype(item), double>) {
      if (std::isfinite(item) && std::abs(item) > std::numeric_limits<float>::max()) {
        return std::nullopt;
      }
    }
    return static_cast<float>(item);
  };
  return CastItems<float>(*this, key, *value, "an array of numbers", cast);
}

uint64_t GgufMetadata::GetUint(std::string_view key) const {
  if (const std::optional<uint64_t> value = FindUint(key)) return *value;
  ThrowMissing(*this, key);
}

double GgufMetadata::GetFloat(std::string_view key) const {
  if (const std::optional<double> value = FindFloat(key)) return *value;
  ThrowMissing(*this, key);
}

const std::string& GgufMetadata::GetString(std::string_view key) const {
  if (const std::string* value = FindString(key)) return *value;
  ThrowMissing(*this, key);
}

void GgufMetadata::SetUint32(std::string_view key, uint32_t value) {
  Set(key, {GgufType::kUint32, uint64_t{value}});
}

void GgufMetadata::SetUint64(std::string_view key, uint64_t value) {
  Set(key, {GgufType::kUint64, value});
}

void GgufMetadata::SetInt32(std::string_view key, int32_t value) {
  Set(key, {GgufType::kInt32, int64_t{value}});
}

void GgufMetadata::SetFloat32(std::string_view key, float value) {
  Set(key, {GgufType::kFloat32, double{value}});
}

void GgufMetadata::SetBool(std::string_view key, bool value) { Set(key, {GgufType::kBool, value}); }

void GgufMetadata::SetString(std::string_view key, std::string value) {
  Set(key, {GgufType::kString, std::move(value)});
}

void GgufMetadata::SetStrings(std::string_view key, std::vector<std::string> values) {
  Set(key, MakeArray(GgufType::kString, std::move(values)));
}

void GgufMetadata::SetInt32s(std::string_view key, std::vector<int32_t> values) {
  Set(key, MakeArray(GgufType::kInt32, std::move(values)));
}

void GgufMetadata::SetFloat32s(std::string_view key, std::vector<float> values) {
  Set(key, MakeArray(GgufType::kFloat32, std::move(values)));
}

void GgufMetadata::Set(std::string_view key, GgufValue value) {
  values_.insert_or_assign(std::string(key), std::move(value));
}

}  // namespace hearth
