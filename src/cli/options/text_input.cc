#include "cli/options/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "storage/block_reader.h"
#include "storage/file_handle.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

// Everything up to the end.
std::string ReadStream(int fd, const std::string& name) {
  std::string text;
  char piece[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::kIo, name, std::strerror(errno));
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > kMaxTextBytes) {
      throw Error(ErrorCode::kInvalidArgument, name, "it is longer than 1 GiB");
    }
  }
}

}  // namespace

bool IsStream(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode);
}

std::string ReadTextFile(const std::string& path) {
  if (path == "-") return ReadStandardInput();
  if (IsStream(path)) {
    const FileHandle stream(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (stream.get() < 0) {
      throw Error(ErrorCode::kIo, path, std::string("cannot open: ") + std::strerror(errno));
    }
    return ReadStream(stream.get(), path);
  }
  const auto file = OpenFileReader(path);
  if (file->size_bytes() > kMaxTextBytes) {
    throw Error(ErrorCode::kInvalidArgument, path, "text file", "at most 1 GiB",
                std::to_string(file->size_bytes()) + " bytes");
  }
  std::string text(file->size_bytes(), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string ReadStandardInput() { return ReadStream(STDIN_FILENO, "standard input"); }

bool StandardInputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

bool StandardOutputIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

}  // namespace hearth::cli
