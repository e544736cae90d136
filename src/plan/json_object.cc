#include "plan/json_object.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>
#include <vector>

namespace hearth {

using nlohmann::json;

JsonObject::JsonObject(const json& value, std::string file, ErrorCode code, std::string place)
    : json_(value), file_(std::move(file)), code_(code), place_(std::move(place)) {
  if (!value.is_object()) Fail("", "an object");
}

bool JsonObject::Has(const std::string& key) {
  asked_.insert(key);
  return json_.contains(key);
}

const json& JsonObject::Get(const std::string& key) {
  if (!Has(key)) throw Error(code_, file_, fmt::format("{} is missing", Place(key)));
  return json_.at(key);
}

int64_t JsonObject::Int(const std::string& key, int64_t least, int64_t most) {
  return IntOf(Get(key), key, least, most);
}

int64_t JsonObject::IntOf(const json& value, const std::string& key, int64_t least,
                          int64_t most) const {
  // What the library has as unsigned may be over 2^63.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  if (fits) return value.get<int64_t>();
  const bool is_any =
      least == std::numeric_limits<int64_t>::min() && most == std::numeric_limits<int64_t>::max();
  Fail(key, is_any ? "an integer below 2^63" : fmt::format("an integer from {} to {}", least, most),
       value);
}

uint64_t JsonObject::Count(const std::string& key, uint64_t least, uint64_t most) {
  const json& value = Get(key);
  // Whole numbers that a program made, and did not read, may be signed.
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned() || value.get<int64_t>() >= 0) &&
                    value.get<uint64_t>() >= least && value.get<uint64_t>() <= most;
  if (!fits) Fail(key, fmt::format("an integer from {} to {}", least, most), value);
  return value.get<uint64_t>();
}

double JsonObject::Number(const std::string& key, double least, double most) {
  const json& value = Get(key);
  if (!value.is_number()) Fail(key, "a number", value);
  const double number = value.get<double>();
  if (!std::isfinite(number)) Fail(key, "a finite number", value);
  if (number < least || number > most) {
    Fail(key,
         most == std::numeric_limits<double>::max()
             ? fmt::format("a number from {} on", least)
             : fmt::format("a number from {} to {}", least, most),
         value);
  }
  return number;
}

bool JsonObject::Bool(const std::string& key) {
  const json& value = Get(key);
  if (!value.is_boolean()) Fail(key, "true or false", value);
  return value.get<bool>();
}

std::string JsonObject::Text(const std::string& key, size_t most_bytes) {
  const json& value = Get(key);
  if (!value.is_string()) Fail(key, "a string", value);
  if (value.get_ref<const std::string&>().size() > most_bytes) {
    Fail(key, fmt::format("a string of at most {} bytes", most_bytes), value);
  }
  return value.get<std::string>();
}

std::string JsonObject::OneOf(const std::string& key,
                              std::initializer_list<std::string_view> texts) {
  const json& value = Get(key);
  for (const std::string_view text : texts) {
    if (value.is_string() && value.get_ref<const std::string&>() == text) return std::string(text);
  }
  Fail(key, fmt::format("one of {}", fmt::join(texts, ", ")), value);
}

const json& JsonObject::List(const std::string& key, size_t most_entries) {
  const json& value = Get(key);
  if (!value.is_array() || value.size() > most_entries) {
    Fail(key, fmt::format("a list of at most {} entries", most_entries), value);
  }
  return value;
}

JsonObject JsonObject::Object(const std::string& key) {
  return JsonObject(Get(key), file_, code_, Place(key));
}

void JsonObject::Finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (asked_.count(key) > 0) continue;
    throw Error(code_, file_, fmt::format("unknown key '{}'", Printable(Place(key))));
  }
}

void JsonObject::Fail(const std::string& key, const std::string& expected) const {
  const auto found = json_.is_object() ? json_.find(key) : json_.end();
  Fail(key, expected, key.empty() || found == json_.end() ? json_ : *found);
}

void JsonObject::Fail(const std::string& key, const std::string& expected,
                      const json& found) const {
  // Printing lists and objects takes stack by their depth, which somebody else chose.
  const std::string shown = found.is_structured()
                                ? fmt::format("an {}", found.is_array() ? "array" : "object")
                                : found.dump(-1, ' ', true, json::error_handler_t::replace);
  throw Error(code_, file_, Place(key), expected, Printable(shown));
}

std::string JsonObject::Place(const std::string& key) const {
  if (place_.empty()) return key.empty() ? "document" : key;
  return key.empty() ? place_ : place_ + "." + key;
}

}  // namespace hearth
