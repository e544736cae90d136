#include "storage/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/units.h"
#include "storage/block_reader.h"
#include "storage/file_handle.h"

namespace hearth {
namespace {

[[noreturn]] void RefuseLength(const std::string& name, const TextLimit& limit,
                               const std::string& found) {
  throw Error(limit.too_large, name, "size of " + std::string(limit.what),
              "at most " + FormatSize(limit.most_bytes), found);
}

}  // namespace

bool IsStream(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode);
}

std::string ReadStream(int fd, const std::string& name, const TextLimit& limit) {
  std::string text;
  char piece[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::kIo, name, std::strerror(errno));
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > limit.most_bytes) RefuseLength(name, limit, "more");
  }
}

std::string ReadText(const std::string& path, const TextLimit& limit) {
  if (IsStream(path)) {
    const FileHandle stream(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (stream.get() < 0) {
      throw Error(ErrorCode::kIo, path, std::string("cannot open: ") + std::strerror(errno));
    }
    return ReadStream(stream.get(), path, limit);
  }
  const auto file = OpenFileReader(path);
  if (file->size_bytes() > limit.most_bytes) {
    RefuseLength(path, limit, FormatSize(file->size_bytes()));
  }
  std::string text(file->size_bytes(), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace hearth
