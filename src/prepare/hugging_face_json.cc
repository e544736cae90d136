#include "prepare/hugging_face_json.h"

#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "plan/json_reader.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

Error Wrong(const std::string& path, const char* key, const char* expected) {
  return Error(ErrorCode::kCorrupt, path, std::string("'") + key + "'", expected, "something else");
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

PublishedJson PublishedJson::Read(const std::string& path, uint64_t max_bytes) {
  const std::string text = ReadPublishedText(path, max_bytes);
  Json json = ReadJsonDocument(text, path, ErrorCode::kCorrupt);
  if (!json.is_object()) throw Error(ErrorCode::kCorrupt, path, "is no JSON object");
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
    throw Wrong(path_, key, "a number from 0 to 4294967295");
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
    throw Wrong(path_, key, "a number");
  }
  return value->get<double>();
}

bool PublishedJson::Bool(const char* key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw Wrong(path_, key, "true or false");
  return value->get<bool>();
}

std::string PublishedJson::Text(const char* key, const std::string& fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) throw Wrong(path_, key, "a text");
  return value->get<std::string>();
}

PublishedJson PublishedJson::Object(const char* key) const {
  const Json* value = Find(key);
  if (value != nullptr && !value->is_object()) throw Wrong(path_, key, "an object");
  return {path_ + ": " + key, value != nullptr ? *value : Json::object()};
}

}  // namespace hearth
