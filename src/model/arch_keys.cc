#include "model/arch_keys.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace hearth {

bool ArchKeys::IsArray(const char* key) const {
  const GgufValue* value = metadata_.FindOrNull(prefix_ + key);
  return value != nullptr && value->type == GgufType::kArray;
}

int64_t ArchKeys::OfEveryLayer(const char* key) const {
  const std::vector<int64_t> values = metadata_.FindInts(prefix_ + key).value();
  const auto refuse = [&](ErrorCode code, const std::string& expected, const std::string& found) {
    throw Error(code, metadata_.file_name(), prefix_ + key, expected, found);
  };
  const uint64_t layers = metadata_.GetUint(prefix_ + "block_count");
  if (values.empty() || values.size() != layers) {
    refuse(ErrorCode::kCorrupt, std::to_string(layers) + " numbers, one per layer",
           std::to_string(values.size()));
  }
  const auto other = std::find_if(values.begin(), values.end(),
                                  [&](int64_t value) { return value != values.front(); });
  if (other != values.end()) {
    refuse(ErrorCode::kUnsupported, "the same number for every layer (others cannot be run yet)",
           std::to_string(values.front()) + " and " + std::to_string(*other));
  }
  if (values.front() < 0) {
    refuse(ErrorCode::kCorrupt, "numbers of 0 or more", std::to_string(values.front()));
  }
  return Checked(key, static_cast<uint64_t>(values.front()));
}

int64_t ArchKeys::Checked(const char* key, uint64_t value) const {
  if (value > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorCode::kCorrupt, metadata_.file_name(), prefix_ + key, "at most 4294967295",
                std::to_string(value));
  }
  return static_cast<int64_t>(value);
}

}  // namespace hearth
