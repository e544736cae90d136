#include "storage/disk_space.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/units.h"

namespace hearth {
namespace {

std::optional<uint64_t> FreeBytesAt(const std::filesystem::path& folder) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return uint64_t{info.f_bavail} * uint64_t{info.f_frsize};
}

}  // namespace

std::optional<uint64_t> FreeDiskBytes(const std::string& path) {
  std::error_code failure;
  std::filesystem::path there = std::filesystem::weakly_canonical(path, failure);
  if (failure) return std::nullopt;
  while (!std::filesystem::exists(there, failure) && there.has_relative_path()) {
    there = there.parent_path();
  }
  return FreeBytesAt(there);
}

void CheckDiskSpace(const std::string& path, uint64_t needed_bytes) {
  std::error_code failure;  // a link leads to the disk that will have it
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, failure);
  std::filesystem::path folder = (failure ? std::filesystem::path(path) : whole).parent_path();
  if (folder.empty()) folder = ".";
  const std::optional<uint64_t> free_bytes = FreeBytesAt(folder);
  if (!free_bytes || needed_bytes <= *free_bytes) return;
  throw Error(ErrorCode::kIo, path, "free disk space",
              fmt::format("at least {}", FormatSize(needed_bytes)), FormatSize(*free_bytes));
}

}  // namespace hearth
