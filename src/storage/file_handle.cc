#include "storage/file_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace hearth {
namespace {

// What a path that is not a regular file is, for a message.
const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "a device";
  return "something else";
}

FileIdentity IdentityOf(const struct stat& info) {
  FileIdentity identity;
  identity.device = info.st_dev;
  identity.inode = info.st_ino;
  identity.size_bytes = static_cast<uint64_t>(info.st_size);
  identity.modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return identity;
}

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

RegularFile OpenRegularFile(const std::string& path) {
  RegularFile file;
  // Non-blocking, so that a pipe is refused below instead of waited for.
  file.handle = FileHandle(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.handle.get() < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(missing ? ErrorCode::kNotFound : ErrorCode::kIo, path,
                fmt::format("cannot open: {}", std::strerror(errno)));
  }
  struct stat info = {};
  if (fstat(file.handle.get(), &info) != 0) {
    throw Error(ErrorCode::kIo, path, fmt::format("cannot stat: {}", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, path, "cannot read", "a regular file", KindOf(info.st_mode));
  }
  // Blocking again: io_uring takes the flag as "fail rather than wait", for regular files too.
  fcntl(file.handle.get(), F_SETFL, 0);
  file.identity = IdentityOf(info);
  return file;
}

void CheckIdentity(const std::string& path, int fd, const FileIdentity& identity) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) {
    throw Error(ErrorCode::kIo, path, fmt::format("cannot stat: {}", std::strerror(errno)));
  }
  const FileIdentity open_now = IdentityOf(info);
  if (open_now.size_bytes != identity.size_bytes) {
    throw Error(ErrorCode::kIo, path,
                fmt::format("changed while it was in use: it has {} bytes, and had {} when it was "
                            "opened",
                            open_now.size_bytes, identity.size_bytes));
  }
  if (open_now.modified_ns != identity.modified_ns) {
    throw Error(ErrorCode::kIo, path, "was written to while it was in use");
  }
  if (stat(path.c_str(), &info) != 0) {
    throw Error(ErrorCode::kIo, path,
                fmt::format("was removed while it was in use: {}", std::strerror(errno)));
  }
  const FileIdentity named_now = IdentityOf(info);
  if (named_now.device != identity.device || named_now.inode != identity.inode) {
    throw Error(ErrorCode::kIo, path, "was replaced by another file while it was in use");
  }
}

}  // namespace hearth
