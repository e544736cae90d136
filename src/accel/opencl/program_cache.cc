#include "accel/opencl/program_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "base/error.h"
#include "storage/atomic_file.h"
#include "storage/file_handle.h"

namespace hearth::accel {
namespace {

constexpr char kMark[9] = "hearthcl";
constexpr size_t kHeaderBytes = 16;
// Binaries of real drivers have some hundred kilobytes.
constexpr uint64_t kMostProgramBytes = uint64_t{256} << 20;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

uint64_t HashOf(std::string_view key, std::span<const std::byte> binary) {
  ChecksumStream hash;
  hash.Update(BytesOf(key));
  hash.Update(binary);
  return hash.Digest();
}

// True where nobody but this user and root can have written the file.
bool IsOurs(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool ReadAll(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

std::string ProgramCache::PathOf(std::string_view key) const {
  return fmt::format("{}/{:016x}.clbin", folder_, Checksum(BytesOf(key)));
}

std::optional<std::vector<std::byte>> ProgramCache::Find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  try {
    const RegularFile file = OpenRegularFile(PathOf(key));
    const uint64_t bytes = file.identity.size_bytes;
    if (!IsOurs(file.handle.get()) || bytes <= kHeaderBytes || bytes > kMostProgramBytes) return {};
    std::byte header[kHeaderBytes];
    std::vector<std::byte> binary(static_cast<size_t>(bytes) - kHeaderBytes);
    if (!ReadAll(file.handle.get(), header) || !ReadAll(file.handle.get(), binary)) return {};
    uint64_t stored = 0;
    std::memcpy(&stored, header + 8, sizeof(stored));
    if (std::memcmp(header, kMark, 8) != 0 || stored != HashOf(key, binary)) return {};
    return binary;
  } catch (const Error&) {
    return std::nullopt;  // there is none, or it cannot be read
  }
}

void ProgramCache::Keep(std::string_view key, std::span<const std::byte> binary) const noexcept {
  if (folder_.empty()) return;
  try {
    std::filesystem::create_directories(folder_);
    AtomicFile file(PathOf(key), 0600);
    const uint64_t checksum = HashOf(key, binary);
    std::byte header[kHeaderBytes];
    std::memcpy(header, kMark, 8);
    std::memcpy(header + 8, &checksum, sizeof(checksum));
    file.Write(header);
    file.Write(binary);
    file.Finish();
  } catch (const std::exception&) {
    // The next start compiles again.
  }
}

}  // namespace hearth::accel
