// Built programs in files, so that a device's driver compiles each of them once.
//
// A file's name is the hash of all that a binary depends on. It holds 8 bytes of mark, the XXH3-64
// of the binary in 8 bytes, little-endian, and the binary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hearth::accel {

// Thread-safe; several processes may share a folder.
class ProgramCache {
 public:
  // Empty: nothing is kept. The folder is made when something is.
  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  // Where the binary of a program lies whose sources, options, device and driver are `key`.
  std::string PathOf(std::string_view key) const;
  // Nothing where there is none, or where the file is damaged.
  std::optional<std::vector<std::byte>> Find(std::string_view key) const;
  // Replaces what is there. A folder that cannot be written keeps nothing: the next start compiles
  // again, as this one did.
  void Keep(std::string_view key, std::span<const std::byte> binary) const noexcept;

 private:
  std::string folder_;
};

}  // namespace hearth::accel
