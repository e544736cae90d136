// Server-sent events (the HTML standard, section 9.2) in the chunks of HTTP/1.1 (RFC 9112, section
// 7.1). The head of their answer is StreamHead of http_message.h.
#pragma once

#include <string>
#include <string_view>

namespace hearth::serve {

// One event. Neither name nor data has a line break; without a name it is a "message".
std::string FrameEvent(std::string_view name, std::string_view data);
// What clients skip: it shows that the connection still lives.
std::string FrameComment(std::string_view text);

// A chunk with this text, which is not empty; and the one that ends a body.
std::string FrameChunk(std::string_view text);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace hearth::serve
