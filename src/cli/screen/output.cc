#include "cli/screen/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace hearth::cli {
namespace {

// 0 when all is written, else errno.
int WriteAll(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // a terminal that another program made non-blocking
      pollfd writable = {fd, POLLOUT, 0};
      if (poll(&writable, 1, -1) < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void WriteOutput(std::string_view text) {
  const int error = WriteAll(STDOUT_FILENO, text);
  if (error != 0) throw Error(ErrorCode::kIo, "standard output", std::strerror(error));
}

void PrintNotice(std::string_view text) noexcept { WriteAll(STDERR_FILENO, text); }

std::string Dim(std::string_view text) {
  if (isatty(STDERR_FILENO) != 1) return std::string(text);
  return "\x1b[2m" + std::string(text) + "\x1b[0m";
}

std::string OptionName(const Error& error) {
  std::string name = error.field();
  // What a command writes itself, which no option sets.
  for (const char* own : {"messages", "tools", "chat_template_kwargs", "json_schema"}) {
    if (name.starts_with(own)) return "";
  }
  if (name == "temperature") return "temp";
  if (name == "adapters") return "lora";
  if (name == "context") return "ctx";
  if (name == "max_tokens") return "tokens";
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Sentence(const Error& error) {
  const std::string name = OptionName(error);
  return name.empty() ? error.what() : fmt::format("--{}: {}", name, error.problem());
}

void PrintSentence(std::string_view sentence) {
  std::string line = "hearth: ";
  for (const char c : sentence) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    line += is_control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  PrintNotice(line + "\n");
}

void KeepStandardStreams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one: those below are open by now.
    const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened < 0) return;
  }
}

}  // namespace hearth::cli
