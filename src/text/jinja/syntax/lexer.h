// The first step of reading a template: Jinja's text, tags and expressions as tokens.
//
// As Jinja2 3.1.6 does it in the environment that Hugging Face transformers sets up for chat
// templates: trim_blocks, lstrip_blocks, the usual delimiters, no line statements, one line break
// at the very end dropped.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/jinja/values/numbers.h"
#include "text/jinja/values/text.h"

namespace hearth::jinja {

enum class TokenKind {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  Text text;  // of data, names, strings (unescaped) and operators
  Int integer = 0;
  double real = 0;
};

// The last token is kEnd. Throws Failure with the line.
std::vector<Token> Tokenize(std::string_view source_utf8);

// What a message calls the token.
std::string Describe(const Token& token);

}  // namespace hearth::jinja
