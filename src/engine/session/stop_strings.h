// Ends a stream of text at the first of several stop strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text and returns what may be shown: everything that cannot become part of a stop string.
  // Once a stop string was seen, what precedes it is returned and nothing after it.
  std::string Push(std::string_view text);
  // What was held back, at the end of the stream.
  std::string Finish();
  bool stopped() const { return stopped_; }
  // The stop string that was seen; empty before.
  const std::string& stop_text() const { return stop_text_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  std::string stop_text_;
};

}  // namespace hearth
