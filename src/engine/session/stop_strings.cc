#include "engine/session/stop_strings.h"

#include <algorithm>
#include <utility>

namespace hearth {
namespace {

// Length of the longest end of `text` that begins `stop`.
size_t OverlapAtEnd(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  size_t overlap = 0;
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at < first) {
      first = at;
      stop_text_ = stop;
    }
    overlap = std::max(overlap, OverlapAtEnd(held_, stop));
  }
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  std::string out = held_.substr(0, held_.size() - overlap);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::Finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

}  // namespace hearth
