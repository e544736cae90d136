#include "load/wire.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace hearth::load {
namespace {

constexpr size_t kLongestEvent = size_t{1} << 20;

[[noreturn]] void RefuseUrl(const std::string& text) {
  throw Error(ErrorCode::kInvalidArgument, "--url", "address",
              "http://HOST:PORT, as http://127.0.0.1:8080", "'" + Printable(text) + "'");
}

}  // namespace

std::string Url::host_header() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + port;
}

Url ParseUrl(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (text.rfind(kScheme, 0) != 0) RefuseUrl(text);
  std::string rest = text.substr(kScheme.size());
  if (!rest.empty() && rest.back() == '/') rest.pop_back();
  Url url;
  url.port = "80";
  size_t host_end = rest.find(':');
  if (!rest.empty() && rest.front() == '[') {
    const size_t bracket = rest.find(']');
    if (bracket == std::string::npos) RefuseUrl(text);
    url.host = rest.substr(1, bracket - 1);
    host_end = bracket + 1 == rest.size() ? std::string::npos : bracket + 1;
    if (host_end != std::string::npos && rest[host_end] != ':') RefuseUrl(text);
  } else {
    url.host = rest.substr(0, host_end);
  }
  if (host_end != std::string::npos) url.port = rest.substr(host_end + 1);
  const bool is_port =
      !url.port.empty() && url.port.size() <= 5 &&
      std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
      std::stoi(url.port) <= 65535;
  if (!is_port || url.host.empty() || url.host.find_first_of("/@?# ") != std::string::npos) {
    RefuseUrl(text);
  }
  return url;
}

void EventReader::Take(std::string_view bytes) {
  for (;;) {
    const size_t end = bytes.find('\n');
    if (rest_.size() + std::min(end, bytes.size()) + data_.size() > kLongestEvent) {
      throw Error(ErrorCode::kCorrupt, "stream", "an event is longer than 1 MiB");
    }
    if (end == std::string_view::npos) {
      rest_ += bytes;
      return;
    }
    rest_ += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    std::string line;
    line.swap(rest_);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    TakeLine(line);
  }
}

void EventReader::TakeLine(std::string_view line) {
  if (line.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kField = "data:";
  if (line.rfind(kField, 0) != 0) return;
  line.remove_prefix(kField.size());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

std::map<std::string, double> ParseMetrics(std::string_view text) {
  std::map<std::string, double> values;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const size_t blank = line.rfind(' ');
    if (blank == std::string_view::npos || blank == 0) continue;
    const std::string_view number = line.substr(blank + 1);
    double value = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size()) continue;
    values[std::string(line.substr(0, blank))] = value;
  }
  return values;
}

}  // namespace hearth::load
