// An object of a JSON document that somebody else wrote, read key by key. What is missing, of
// another type or out of its range throws an Error that names the file and the place in it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace hearth {

// One thread at a time.
class JsonObject {
 public:
  // `json` must outlive this. `code` is what errors are; `place` is where the object lies in the
  // document ("flash", "threads[2]"), empty for the document itself. Throws unless it is an object.
  JsonObject(const nlohmann::json& json, std::string file, ErrorCode code, std::string place = "");

  const std::string& file() const { return file_; }

  // Keys that were asked for in any of these ways are known to Finish. All but Has and
  // NumberOr throw where the key is missing.
  bool Has(const std::string& key);
  const nlohmann::json& Get(const std::string& key);
  bool IsNull(const std::string& key) { return Get(key).is_null(); }
  // From least to most.
  int64_t Int(const std::string& key, int64_t least = std::numeric_limits<int64_t>::min(),
              int64_t most = std::numeric_limits<int64_t>::max());
  uint64_t Count(const std::string& key, uint64_t least, uint64_t most);
  double Number(const std::string& key, double least = std::numeric_limits<double>::lowest(),
                double most = std::numeric_limits<double>::max());
  double NumberOr(const std::string& key, double fallback) {
    return Has(key) ? Number(key) : fallback;
  }
  bool Bool(const std::string& key);
  std::string Text(const std::string& key, size_t most_bytes = 4096);
  std::string OneOf(const std::string& key, std::initializer_list<std::string_view> texts);
  const nlohmann::json& List(const std::string& key, size_t most_entries);
  JsonObject Object(const std::string& key);

  // Calls read(JsonObject&) with every entry of a list of objects, of which no key may be unknown.
  template <typename Read>
  void ForEach(const std::string& key, size_t most_entries, Read&& read) {
    const nlohmann::json& list = List(key, most_entries);
    for (size_t i = 0; i < list.size(); ++i) {
      JsonObject entry(list[i], file_, code_, Place(key) + "[" + std::to_string(i) + "]");
      read(entry);
      entry.Finish();
    }
  }

  // Of a value that lies at `key` or inside it.
  int64_t IntOf(const nlohmann::json& value, const std::string& key, int64_t least,
                int64_t most) const;

  // Throws where there are keys that nobody asked for.
  void Finish() const;

  // Refuses what lies at `key`, or the object itself where that is empty.
  [[noreturn]] void Fail(const std::string& key, const std::string& expected) const;
  [[noreturn]] void Fail(const std::string& key, const std::string& expected,
                         const nlohmann::json& found) const;

 private:
  std::string Place(const std::string& key) const;

  const nlohmann::json& json_;
  const std::string file_;
  const ErrorCode code_;
  const std::string place_;
  std::set<std::string> asked_;
};

}  // namespace hearth
