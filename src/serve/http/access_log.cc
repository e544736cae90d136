#include "serve/http/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace hearth::serve {
namespace {

// A pipe takes a line of up to PIPE_BUF bytes whole or not at all: the longest line, every byte
// escaped, stays below.
constexpr size_t kMostMethod = 32;
constexpr size_t kMostPath = 512;
static_assert(4 * (kMostMethod + kMostPath) + 512 < PIPE_BUF);

// Printable, without spaces and what quotes others: at most `most` bytes of it.
std::string Escaped(std::string_view text, size_t most) {
  std::string escaped;
  for (const char c : text.substr(0, most)) {
    const bool is_plain = c > ' ' && c < '\x7f' && c != '\\' && c != '"';
    escaped += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  if (text.size() > most) escaped += "...";
  return escaped.empty() ? "-" : escaped;
}

// Without the query. What is no path ("user:password@host") may be a secret.
std::string_view LoggedPath(std::string_view target) {
  if (target.empty() || target.front() != '/') return {};
  return target.substr(0, target.find_first_of("?#"));
}

// A description of the same pipe or terminal whose writes do not wait: the flag belongs to the
// description, and others write to theirs. -1 where the system gives none.
int OpenWithoutWaiting(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) return -1;
  // Files never keep anybody waiting, and must be written from where they are.
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return -1;
  return open(fmt::format("/proc/self/fd/{}", fd).c_str(),
              O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

// As write, and EAGAIN where it would wait.
ssize_t WriteNow(int fd, std::string_view text) {
  const ssize_t sent = send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  pollfd writable = {fd, POLLOUT, 0};
  if (poll(&writable, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd, text.data(), text.size());
}

}  // namespace

std::string LogLine(const LoggedRequest& request) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(request.time);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  std::string line = fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z {} {} {} {} bytes={} ms={:.1f}",
                                 fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                                 (milliseconds - seconds).count(), request.client,
                                 Escaped(request.method, kMostMethod),
                                 Escaped(LoggedPath(request.target), kMostPath),
                                 request.status == 0 ? "-" : std::to_string(request.status),
                                 request.bytes_sent, request.milliseconds);
  const ExchangeReport& exchange = request.exchange;
  if (exchange.prompt_tokens) line += fmt::format(" prompt={}", *exchange.prompt_tokens);
  if (exchange.completion_tokens) {
    line += fmt::format(" completion={}", *exchange.completion_tokens);
  }
  if (exchange.failure != 0 && exchange.failure != request.status) {
    line += fmt::format(" error={}", exchange.failure);
  }
  if (request.is_aborted) line += " aborted";
  return line;
}

AccessLog::AccessLog(int fd) : fd_(OpenWithoutWaiting(fd)), is_own_(fd_ >= 0) {
  if (!is_own_) fd_ = fd;
}

AccessLog::~AccessLog() {
  WriteDropped();
  if (is_own_) close(fd_);
}

void AccessLog::Write(std::string_view line) {
  if (!WriteDropped() || !WriteWhole(std::string(line) + "\n")) ++dropped_;
}

// What a terminal took only a part of is ended before anything else is written.
bool AccessLog::WriteRest() {
  if (rest_.empty()) return true;
  const ssize_t written = WriteNow(fd_, rest_);
  if (written < 0) return false;
  rest_.erase(0, static_cast<size_t>(written));
  return rest_.empty();
}

// Whether it was taken, or will be.
bool AccessLog::WriteWhole(std::string line) {
  if (!WriteRest()) return false;
  const ssize_t written = WriteNow(fd_, line);
  if (written < 0) return false;
  rest_ = line.erase(0, static_cast<size_t>(written));
  return true;
}

bool AccessLog::WriteDropped() {
  if (dropped_ == 0) return true;
  if (!WriteWhole(fmt::format(
          "hearth: {} lines of the log were dropped: nobody took them in time\n", dropped_))) {
    return false;
  }
  dropped_ = 0;
  return true;
}

void RequestTrace::Begin() {
  if (log_ == nullptr) return;
  begin_ = std::chrono::steady_clock::now();
  status_ = 0;
  bytes_sent_ = 0;
}

void RequestTrace::End(const RequestHead& head, const ExchangeReport& exchange, bool is_aborted) {
  if (log_ == nullptr) return;
  const auto taken = std::chrono::steady_clock::now() - begin_;
  log_->Write(LogLine({.time = std::chrono::system_clock::now(),
                       .client = client_,
                       .method = head.method,
                       .target = head.target,
                       .status = status_,
                       .bytes_sent = bytes_sent_,
                       .milliseconds = std::chrono::duration<double, std::milli>(taken).count(),
                       .exchange = exchange,
                       .is_aborted = is_aborted}));
}

}  // namespace hearth::serve
