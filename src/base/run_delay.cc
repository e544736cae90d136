#include "base/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace hearth {

std::optional<double> ThreadRunDelaySeconds() {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 128> text;
  const ssize_t bytes = read(file, text.data(), text.size());
  close(file);
  if (bytes <= 0) return std::nullopt;
  // Nanoseconds on a processor, nanoseconds waiting for one, turns.
  std::string_view rest(text.data(), static_cast<size_t>(bytes));
  const size_t space = rest.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(space + 1);
  uint64_t waiting_ns = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), waiting_ns).ec != std::errc()) {
    return std::nullopt;
  }
  return static_cast<double>(waiting_ns) * 1e-9;
}

}  // namespace hearth
