// Rendering in one call, for tests.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
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

struct LanguageCase {
  const char* source;
  const char* expected;
};

// Each template gives what it should, in this context.
inline void ExpectAll(std::initializer_list<LanguageCase> cases, std::string_view context = "{}") {
  for (const LanguageCase& c : cases) {
    try {
      EXPECT_EQ(Render(c.source, context), c.expected) << c.source;
    } catch (const Error& error) {
      ADD_FAILURE() << c.source << "\n" << error.what();
    }
  }
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
