#include "serve/http/event_stream.h"

#include <fmt/format.h>

namespace hearth::serve {

std::string FrameEvent(std::string_view name, std::string_view data) {
  return name.empty() ? fmt::format("data: {}\n\n", data)
                      : fmt::format("event: {}\ndata: {}\n\n", name, data);
}

std::string FrameComment(std::string_view text) { return fmt::format(": {}\n\n", text); }

std::string FrameChunk(std::string_view text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace hearth::serve
