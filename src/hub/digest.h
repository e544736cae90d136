// The hashes by which the hub names what files hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "hub/system_libraries.h"

namespace hearth::hub {

// How the hub hashes a file: large ones (LFS) by SHA-256, small ones as git does, by SHA-1 of a
// line with the size and the content.
enum class DigestKind { kSha256, kGitSha1 };

// Hexadecimal digits of such a hash.
size_t DigestDigits(DigestKind kind);

// Hashes a file that comes in pieces. Not thread-safe.
class FileDigest {
 public:
  // total_bytes: of the whole file. Throws as LoadDigests does.
  FileDigest(DigestKind kind, uint64_t total_bytes);

  void Update(std::span<const std::byte> bytes);
  // Returns the hash of all bytes in lower-case hexadecimal. The last call on a FileDigest.
  std::string Finish();

 private:
  const DigestFunctions& library_;
  std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context_;
};

// Adds the first `bytes` of an open file to a hash and calls progress(bytes so far) in between.
// Throws Error(kIo), naming the file `name`, where it cannot be read or is shorter.
void AddFile(int fd, const std::string& name, uint64_t bytes, FileDigest& digest,
             const std::function<void(uint64_t)>& progress);

}  // namespace hearth::hub
