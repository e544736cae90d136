#include "import/hugging_face_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "format/foreign_file.h"
#include "plan/json_reader.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

// What a message shows of a value.
std::string Shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return "NaN or Infinity";
  return Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

Error Wrong(const std::string& path, const char* key, const char* expected, const Json& found) {
  return Error(ErrorCode::kCorrupt, path, std::string("'") + key + "'", expected, Shown(found));
}

// Numbers that Python writes, and strings that stand for them while a text is parsed.
struct PythonNumber {
  std::string_view written;
  std::string_view marker;  // as JSON
  std::string_view parsed;
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr PythonNumber kPythonNumbers[] = {
    {"NaN", R"("\u0000NaN")", std::string_view("\0NaN", 4),
     std::numeric_limits<double>::quiet_NaN()},
    {"-Infinity", R"("\u0000-Infinity")", std::string_view("\0-Infinity", 10), -kInfinity},
    {"Infinity", R"("\u0000Infinity")", std::string_view("\0Infinity", 9), kInfinity}};

// The text with markers for such numbers, wherever they are outside of strings.
std::string WithMarkers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      const auto* found = std::find_if(
          std::begin(kPythonNumbers), std::end(kPythonNumbers),
          [&](const PythonNumber& n) { return text.substr(i).starts_with(n.written); });
      if (found != std::end(kPythonNumbers)) {
        out += found->marker;
        i += found->written.size() - 1;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

// Markers become the numbers that they stand for. Documents are at most 64 levels deep.
void PutNumbers(Json& value) {
  if (value.is_structured()) {
    for (Json& part : value) PutNumbers(part);
    return;
  }
  if (!value.is_string()) return;
  for (const PythonNumber& number : kPythonNumbers) {
    if (value.get_ref<const std::string&>() != number.parsed) continue;
    value = number.value;
    return;
  }
}

// "line 3, column 7" of a byte; all are counted from 1.
std::string PlaceOf(std::string_view text, size_t byte) {
  const std::string_view before =
      text.substr(0, std::min(byte - std::min<size_t>(byte, 1), text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
  return fmt::format("line {}, column {}", lines + 1, before.size() - line_begin + 1);
}

// Why it is not JSON, with the place.
[[noreturn]] void RefuseText(const std::string& path, const std::string& text) {
  size_t byte = text.size();
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text);
  } catch (const Json::parse_error& error) {
    byte = error.byte;
  } catch (const Json::out_of_range&) {
    throw Error(ErrorCode::kCorrupt, path, "has a number too large for 64-bit floating point");
  }
  throw Error(ErrorCode::kCorrupt, path,
              "is not JSON: the first error is at " + PlaceOf(text, byte));
}

}  // namespace

std::string ReadPublishedText(const std::string& path, uint64_t max_bytes) {
  const auto file = OpenFileReader(path);
  if (file->size_bytes() > max_bytes) {
    throw Error(ErrorCode::kUnsupported, path, "size",
                "at most " + std::to_string(max_bytes) + " bytes",
                std::to_string(file->size_bytes()));
  }
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

Json ReadPublishedJson(const std::string& path, uint64_t max_bytes) {
  const std::string text = ReadPublishedText(path, max_bytes);
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::kCorrupt, path, why); };
  Json json = ReadJson<Json>(text, {.each_key_once = true}, refuse);
  if (!json.is_discarded()) return json;
  const std::string_view head = std::string_view(text).substr(0, kForeignHeadBytes);
  if (const auto foreign = RecognizeSignature(head, text.size())) {
    throw Error(foreign->code, path, "content", "JSON", foreign->found);
  }
  const std::string marked = WithMarkers(text);
  json = ReadJson<Json>(marked, {.each_key_once = true}, refuse);
  if (json.is_discarded()) RefuseText(path, marked);
  PutNumbers(json);
  return json;
}

PublishedJson PublishedJson::Read(const std::string& path, uint64_t max_bytes) {
  Json json = ReadPublishedJson(path, max_bytes);
  if (!json.is_object()) throw Error(ErrorCode::kCorrupt, path, "is not a JSON object");
  return {path, std::move(json)};
}

const Json* PublishedJson::Find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

int64_t PublishedJson::Int(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr) {
    throw Error(ErrorCode::kNotFound, path_, std::string("'") + key + "' is missing");
  }
  if (!value->is_number_unsigned() ||
      value->get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
    throw Wrong(path_, key, "a number from 0 to 4294967295", *value);
  }
  return value->get<int64_t>();
}

int64_t PublishedJson::Int(const char* key, int64_t fallback) const {
  return Has(key) ? Int(key) : fallback;
}

double PublishedJson::Float(const char* key, double fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    throw Wrong(path_, key, "a number", *value);
  }
  return value->get<double>();
}

bool PublishedJson::Bool(const char* key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw Wrong(path_, key, "true or false", *value);
  return value->get<bool>();
}

std::string PublishedJson::Text(const char* key, const std::string& fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) throw Wrong(path_, key, "a text", *value);
  return value->get<std::string>();
}

PublishedJson PublishedJson::Object(const char* key) const {
  const Json* value = Find(key);
  if (value != nullptr && !value->is_object()) throw Wrong(path_, key, "an object", *value);
  return {path_ + ": " + key, value != nullptr ? *value : Json::object()};
}

}  // namespace hearth
