// Values of a published JSON file, asked for by name. Internal to import/.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace hearth {

// A file of at most max_bytes, whole. Throws Error.
std::string ReadPublishedText(const std::string& path, uint64_t max_bytes);

// Reads and parses a file of at most max_bytes. NaN, Infinity and -Infinity, which Python writes
// and JSON does not have, are numbers that are not finite. Throws Error, saying what the file is
// instead or where it stops being JSON.
nlohmann::json ReadPublishedJson(const std::string& path, uint64_t max_bytes);

class PublishedJson {
 public:
  // Reads and parses a file of at most max_bytes that must be an object. Throws Error.
  static PublishedJson Read(const std::string& path, uint64_t max_bytes);

  PublishedJson(std::string path, nlohmann::json json)
      : path_(std::move(path)), json_(std::move(json)) {}

  const std::string& path() const { return path_; }
  const nlohmann::json& json() const { return json_; }

  // Missing and null are the same. Another type, or a number that is negative or over 2^32 - 1
  // where one is counted, throws Error(kCorrupt) naming file and key.
  bool Has(const char* key) const { return Find(key) != nullptr; }
  const nlohmann::json* Find(const char* key) const;
  int64_t Int(const char* key) const;  // must be there
  int64_t Int(const char* key, int64_t fallback) const;
  double Float(const char* key, double fallback) const;
  bool Bool(const char* key, bool fallback) const;
  std::string Text(const char* key, const std::string& fallback) const;
  // An object inside, with `path` saying where; empty where it is missing.
  PublishedJson Object(const char* key) const;

 private:
  std::string path_;
  nlohmann::json json_;
};

}  // namespace hearth
