#include "serve/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "plan/json_reader.h"
#include "serve/request_error.h"

namespace hearth::serve {
namespace {

// A small body must not become a large document. Members are looked up one by one.
constexpr JsonLimits kBodyLimits = {
    .most_levels = 32, .most_values = size_t{1} << 17, .most_members = 1024};

std::string Words(double number) { return fmt::format("{:g}", number); }

constexpr size_t kEscapeBytes = 6;  // "\\ud83d"

// The code unit of the escape "\\uXXXX" at `at`; nothing where there is none.
std::optional<unsigned> EscapedUnit(std::string_view text, size_t at) {
  if (text.substr(at, 2) != "\\u" || text.size() - at < kEscapeBytes) return std::nullopt;
  unsigned unit = 0;
  const char* const end = text.data() + at + kEscapeBytes;
  const auto [stop, error] = std::from_chars(end - 4, end, unit, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return unit;
}

// Where JSON has an escape of half a UTF-16 pair without the other half; npos where it has none.
size_t FindLoneSurrogate(std::string_view json) {
  constexpr unsigned kHigh = 0xD800, kLow = 0xDC00, kEnd = 0xE000;
  for (size_t at = 0; at + 1 < json.size(); ++at) {
    if (json[at] != '\\') continue;
    const auto unit = EscapedUnit(json, at);
    if (!unit) {
      ++at;  // an escape of one character
    } else if (*unit >= kLow && *unit < kEnd) {
      return at;
    } else if (*unit >= kHigh && *unit < kLow) {
      const auto next = EscapedUnit(json, at + kEscapeBytes);
      if (!next || *next < kLow || *next >= kEnd) return at;
      at += kEscapeBytes;
    }
  }
  return std::string_view::npos;
}

}  // namespace

Json ParseBody(std::string_view body) {
  Json document = ReadJson<Json>(body, kBodyLimits, [](const std::string& why) {
    throw RequestError(Status::kBadRequest, "request body: " + why);
  });
  if (!document.is_discarded()) return document;
  const size_t at = FindLoneSurrogate(body);
  const std::string words =
      at == std::string_view::npos
          ? "expected JSON in UTF-8"
          : fmt::format(
                "byte {}: {} is a lone surrogate, half of a character: expected the escapes "
                "of both halves",
                at, body.substr(at, kEscapeBytes));
  throw RequestError(Status::kBadRequest, "request body: " + words, "", "invalid_json");
}

std::string JsonText(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

size_t DocumentBytes(std::string_view body) {
  // A value, its place in a list or beside its key, and what the allocator takes for one.
  constexpr size_t kValueBytes = 96;
  size_t values = 1;
  bool is_text = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (is_text && c == '\\') ++i;
    if (c == '"') is_text = !is_text;
    if (!is_text && (c == ',' || c == ':' || c == '[' || c == '{')) ++values;
  }
  return body.size() + std::min(values, kBodyLimits.most_values) * kValueBytes;
}

std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_float()) {
    // Of these every double is a whole number of 64 bits, if it is whole.
    constexpr double kLimit = 9223372036854775808.0;
    const auto number = value.get<double>();
    if (!(number >= -kLimit && number < kLimit) || number != std::trunc(number)) {
      return std::nullopt;
    }
    return static_cast<int64_t>(number);
  }
  if (!value.is_number_integer()) return std::nullopt;
  // Unsigned values past the largest signed one would wrap.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  throw RequestError(Status::kBadRequest,
                     (path_.empty() ? "request body" : path_) + ": expected a JSON object", path_);
}

std::string Fields::PathOf(const std::string& name) const {
  return path_.empty() ? name : path_ + "." + name;
}

void Fields::Fail(const std::string& name, const std::string& expected) const {
  throw RequestError(Status::kBadRequest, fmt::format("{}: expected {}", PathOf(name), expected),
                     PathOf(name), "invalid_value");
}

const Json* Fields::Take(const std::string& name) {
  taken_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::TakeBool(const std::string& name) {
  const Json* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) Fail(name, "true or false");
  return value->get<bool>();
}

std::optional<double> Fields::TakeNumber(const std::string& name, double low, double high) {
  const Json* value = Take(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = fmt::format("a number from {} to {}", Words(low), Words(high));
  if (!value->is_number()) Fail(name, expected);
  const auto number = value->get<double>();
  if (!(number >= low && number <= high)) Fail(name, expected);
  return number;
}

std::optional<int64_t> Fields::TakeInteger(const std::string& name, int64_t low, int64_t high) {
  const Json* value = Take(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  const auto number = WholeNumber(*value);
  if (!number || *number < low || *number > high) Fail(name, expected);
  return number;
}

std::optional<std::string> Fields::TakeString(const std::string& name) {
  const Json* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) Fail(name, "a string");
  return value->get<std::string>();
}

void Fields::Refuse(const std::string& name, const std::string& reason, const Json& neutral) {
  const Json* value = Take(name);
  if (value == nullptr || *value == neutral) return;
  throw RequestError(Status::kBadRequest, fmt::format("{}: {}", PathOf(name), reason), PathOf(name),
                     "unsupported_parameter");
}

void Fields::RefuseRest() const {
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || taken_.count(name) > 0) continue;
    const std::string path = PathOf(Printable(name));
    throw RequestError(Status::kBadRequest, fmt::format("{}: there is no such parameter", path),
                       path, "unknown_parameter");
  }
}

}  // namespace hearth::serve
