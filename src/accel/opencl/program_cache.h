// Built programs in files, so that a device's driver compiles each of them once.
//
// A file's name is the XXH3-64 of its key: all that a binary depends on. It holds 8 bytes of mark,
// the XXH3-64 of key and binary in 8 bytes, little-endian, and the binary. A driver runs what a
// binary says, so only files that nobody but this user (and root) can write are taken.
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
  // Nothing is kept where `folder` is empty. The folder is made when the first program is kept.
  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  // The path of the binary whose sources, options, device and driver are `key`.
  std::string PathOf(std::string_view key) const;
  // Returns nothing where there is no file, where it is damaged or of another key, and where it
  // belongs to another user or others may write it.
  std::optional<std::vector<std::byte>> Find(std::string_view key) const;
  // Replaces the file of this key, for this user alone. Where it cannot be written nothing is kept:
  // the next start compiles again, as this one did.
  void Keep(std::string_view key, std::span<const std::byte> binary) const noexcept;

 private:
  std::string folder_;
};

}  // namespace hearth::accel
