#include "storage/async/unnamed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "storage/async/opened_file.h"

namespace hearth {
namespace {

constexpr unsigned kOwnersOnly = 0600;

// A named file that loses its name at once, where the file system has none without.
int MakeUnlinked(const std::string& folder) {
  std::string path = folder + "/hearth-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

FileHandle MakeFile(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnersOnly);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    fd = MakeUnlinked(folder);
  }
  if (fd < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(missing ? ErrorCode::kNotFound : ErrorCode::kIo, folder,
                fmt::format("no file can be made in it: {}", std::strerror(errno)));
  }
  return FileHandle(fd);
}

int WriteAll(int fd, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return ENOSPC;
    offset += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return 0;
}

// What went through the page cache goes to the disk and leaves memory. Best effort, as all advice.
void DropWritten(int fd, uint64_t offset, size_t bytes) {
  const auto begin = static_cast<off_t>(offset);
  const auto size = static_cast<off_t>(bytes);
  sync_file_range(fd, begin, size,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  posix_fadvise(fd, begin, size, POSIX_FADV_DONTNEED);
}

}  // namespace

UnnamedFile OpenUnnamedFile(const std::string& folder, uint64_t bytes,
                            const AsyncFileOptions& options) {
  FileHandle handle = MakeFile(folder);
  if (ftruncate(handle.get(), static_cast<off_t>(bytes)) != 0) {
    throw Error(
        ErrorCode::kIo, folder,
        fmt::format("a file of {} bytes cannot be made in it: {}", bytes, std::strerror(errno)));
  }
  // The same open file, so that it is direct where reads are.
  const auto writer = std::make_shared<const FileHandle>(fcntl(handle.get(), F_DUPFD_CLOEXEC, 0));
  if (writer->get() < 0) {
    throw Error(ErrorCode::kIo, folder,
                fmt::format("its file cannot be opened twice: {}", std::strerror(errno)));
  }
  OpenedFile opened = PrepareReads(fmt::format("a file in {}", folder), std::move(handle), bytes,
                                   options.direct, UnnamedFile::kAlignment);
  const bool direct = opened.direct;
  UnnamedFile made;
  made.file = MakeAsyncFile(std::move(opened), options);
  made.write = [writer, direct](uint64_t offset, std::span<const std::byte> data) {
    const int error = WriteAll(writer->get(), offset, data);
    if (error == 0 && !direct) DropWritten(writer->get(), offset, data.size());
    return error;
  };
  return made;
}

std::string TemporaryFolder() {
  const char* const folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

}  // namespace hearth
