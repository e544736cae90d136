#include "planner/doctor/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/random_words.h"
#include "base/stopwatch.h"
#include "planner/doctor/hardware_profiler.h"
#include "storage/disk_space.h"
#include "storage/file_writer.h"

namespace hearth {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

[[noreturn]] void ThrowCannotCreate(const std::string& directory) {
  throw Error(ErrorCode::kIo, directory,
              fmt::format("cannot create a file there: {}", std::strerror(errno)));
}

// A new file without a name.
FileHandle CreateNameless(const std::string& directory) {
  FileHandle file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() >= 0) return file;
  // File systems without such files: one that loses its name at once.
  std::string name = (std::filesystem::path(directory) / "hearth-doctor.XXXXXX").string();
  file = FileHandle(mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) ThrowCannotCreate(directory);
  if (unlink(name.c_str()) != 0) ThrowCannotCreate(directory);
  return file;
}

}  // namespace

ScratchFile::ScratchFile(const std::string& directory, uint64_t bytes, double seconds,
                         const std::function<void(double)>& written) {
  if (!std::filesystem::is_directory(directory)) {
    throw Error(ErrorCode::kNotFound, directory, "there is no such folder");
  }
  CheckDiskSpace((std::filesystem::path(directory) / "scratch").string(), bytes);
  handle_ = CreateNameless(directory);
  path_ = fmt::format("/proc/self/fd/{}", handle_.get());
  FileWriter writer(path_, directory);
  writer.KeepOutOfPageCache();
  std::vector<uint64_t> piece(kPieceBytes / sizeof(uint64_t));
  RandomWords random(MixBits(bytes));
  const Stopwatch watch;
  while (writer.written_bytes() < bytes) {
    if (writer.written_bytes() >= kLeastProbeFileBytes && watch.Seconds() > seconds) break;
    for (uint64_t& word : piece) word = random.Next();
    const uint64_t now = std::min(kPieceBytes, bytes - writer.written_bytes());
    writer.Write(std::as_bytes(std::span(piece)).first(now));
    if (written) {
      written(static_cast<double>(writer.written_bytes()) / static_cast<double>(bytes));
    }
  }
  size_bytes_ = writer.written_bytes();
  writer.Close();
  // Writes that are still under way would be measured with the reads; what is cached, not at all.
  if (fdatasync(handle_.get()) != 0) {
    throw Error(ErrorCode::kIo, directory, fmt::format("cannot write: {}", std::strerror(errno)));
  }
  posix_fadvise(handle_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace hearth
