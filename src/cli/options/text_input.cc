#include "cli/options/text_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "storage/block_reader.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

}  // namespace

std::string ReadTextFile(const std::string& path) {
  if (path == "-") return ReadStandardInput();
  const auto file = OpenFileReader(path);
  if (file->size_bytes() > kMaxTextBytes) {
    throw Error(ErrorCode::kInvalidArgument, path, "text file", "at most 1 GiB",
                std::to_string(file->size_bytes()) + " bytes");
  }
  std::string text(file->size_bytes(), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string ReadStandardInput() {
  std::string text;
  char piece[1 << 16];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::kIo, "standard input", std::strerror(errno));
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > kMaxTextBytes) {
      throw Error(ErrorCode::kInvalidArgument, "standard input", "it is longer than 1 GiB");
    }
  }
}

bool StandardInputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

bool StandardOutputIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

}  // namespace hearth::cli
