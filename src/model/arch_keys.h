// The metadata of one file that its architecture prefixes with its name.
#pragma once

#include <cstdint>
#include <string>

#include "format/gguf.h"

namespace hearth {

// Reads "<architecture>.<key>" of a file, which must outlive it. What cannot be read is thrown as
// Error(kCorrupt), what no family can run as Error(kUnsupported).
class ArchKeys {
 public:
  explicit ArchKeys(const GgufFile& file)
      : metadata_(file.metadata()), prefix_(metadata_.GetString("general.architecture") + ".") {}

  // A number of at most 32 bits, so that ValidateSpec can compute with it; or one per layer where
  // all are equal.
  int64_t Int(const char* key) const {
    if (IsArray(key)) return OfEveryLayer(key);
    return Checked(key, metadata_.GetUint(prefix_ + key));
  }
  int64_t Int(const char* key, int64_t fallback) const { return Has(key) ? Int(key) : fallback; }
  double Float(const char* key, double fallback) const {
    return metadata_.FindFloat(prefix_ + key).value_or(fallback);
  }
  const std::string* String(const char* key) const { return metadata_.FindString(prefix_ + key); }
  bool Bool(const char* key, bool fallback) const {
    return metadata_.FindBool(prefix_ + key).value_or(fallback);
  }
  bool Has(const char* key) const { return metadata_.Has(prefix_ + key); }
  std::string Name(const char* key) const { return prefix_ + key; }

 private:
  bool IsArray(const char* key) const;
  int64_t OfEveryLayer(const char* key) const;
  int64_t Checked(const char* key, uint64_t value) const;

  const GgufMetadata& metadata_;
  std::string prefix_;
};

}  // namespace hearth
