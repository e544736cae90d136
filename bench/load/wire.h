// What goes over the wire, as text: addresses, events of streams, Prometheus' format.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hearth::load {

// "http://127.0.0.1:8080", with "[::1]" for IPv6; no path. Throws hearth::Error.
struct Url {
  std::string host;  // without brackets
  std::string port;  // digits
  std::string host_header() const;
};
Url ParseUrl(const std::string& text);

// Cuts a stream of server-sent events into the data of each.
class EventReader {
 public:
  explicit EventReader(std::function<void(std::string_view data)> on_event)
      : on_event_(std::move(on_event)) {}
  // Bytes as they come. Throws hearth::Error(kCorrupt) for an event over 1 MiB.
  void Take(std::string_view bytes);

 private:
  void TakeLine(std::string_view line);

  std::function<void(std::string_view)> on_event_;
  std::string rest_;  // of a line
  std::string data_;
  bool has_data_ = false;
};

// Values by name and labels as they stand: "name{label=\"x\"}". Lines that are none are left out.
std::map<std::string, double> ParseMetrics(std::string_view text);

}  // namespace hearth::load
