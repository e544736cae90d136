#include "accel/opencl/program_cache.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/checksum.h"
#include "base/error.h"
#include "storage/atomic_file.h"

namespace hearth::accel {
namespace {

constexpr char kMark[9] = "hearthcl";
constexpr size_t kHeaderBytes = 16;
// Binaries of real drivers have some hundred kilobytes.
constexpr uintmax_t kMostBytes = uintmax_t{256} << 20;

uint64_t HashOf(std::string_view text) {
  return Checksum(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

std::string ProgramCache::PathOf(std::string_view key) const {
  return fmt::format("{}/{:016x}.clbin", folder_, HashOf(key));
}

std::optional<std::vector<std::byte>> ProgramCache::Find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  std::error_code failed;
  const uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed || bytes <= kHeaderBytes || bytes > kMostBytes) return std::nullopt;
  std::vector<char> text(static_cast<size_t>(bytes));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) return std::nullopt;
  const auto all = std::as_bytes(std::span(text));
  const auto binary = all.subspan(kHeaderBytes);
  uint64_t stored = 0;
  std::memcpy(&stored, all.data() + 8, sizeof(stored));
  if (std::memcmp(all.data(), kMark, 8) != 0 || stored != Checksum(binary)) return std::nullopt;
  return std::vector<std::byte>(binary.begin(), binary.end());
}

void ProgramCache::Keep(std::string_view key, std::span<const std::byte> binary) const noexcept {
  if (folder_.empty()) return;
  try {
    std::filesystem::create_directories(folder_);
    AtomicFile file(PathOf(key));
    const uint64_t checksum = Checksum(binary);
    std::byte header[kHeaderBytes];
    std::memcpy(header, kMark, 8);
    std::memcpy(header + 8, &checksum, sizeof(checksum));
    file.Write(header);
    file.Write(binary);
    file.Finish();
  } catch (const std::exception&) {
    // As the header says.
  }
}

}  // namespace hearth::accel
