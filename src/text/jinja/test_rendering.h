// Rendering in one call, for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/jinja/template.h"

namespace hearth::jinja {

inline std::vector<ChatPiece> RenderPieces(std::string_view source, std::string_view context = "{}",
                                           const Limits& limits = {}) {
  return Template(source, "test").Render(Context::FromJson(context, "context"), limits);
}

inline std::string Render(std::string_view source, std::string_view context = "{}",
                          const Limits& limits = {}) {
  std::string text;
  for (const ChatPiece& piece : RenderPieces(source, context, limits)) text += piece.text;
  return text;
}

// What the template is refused with; "" where it renders.
inline std::string Refusal(std::string_view source, std::string_view context = "{}",
                           const Limits& limits = {}) {
  try {
    RenderPieces(source, context, limits);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInvalidArgument ? error.what() : "another code";
  }
  return "";
}

}  // namespace hearth::jinja
