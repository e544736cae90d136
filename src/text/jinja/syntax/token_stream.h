// The parser's view of the tokens, and how deep it is in them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax/lexer.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }
  Token Take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

  bool Is(TokenKind kind) const { return current().kind == kind; }
  bool IsOperator(std::string_view text) const { return IsOperator(current(), text); }
  bool IsName(std::string_view text) const { return IsName(current(), text); }
  static bool IsOperator(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kOperator && EncodeUtf8(token.text) == text;
  }
  static bool IsName(const Token& token, std::string_view text) {
    return token.kind == TokenKind::kName && EncodeUtf8(token.text) == text;
  }

  bool SkipOperator(std::string_view text) { return Skip(IsOperator(text)); }
  bool SkipName(std::string_view text) { return Skip(IsName(text)); }
  void ExpectOperator(std::string_view text) { Expect(IsOperator(text), text); }
  void ExpectName(std::string_view text) { Expect(IsName(text), text); }
  void ExpectEnd(TokenKind kind) { Expect(Is(kind), kind == TokenKind::kBlockEnd ? "%}" : "}}"); }
  Text TakeName() {
    if (!Is(TokenKind::kName)) Fail("expected a name, found " + Describe(current()));
    return Take().text;
  }

  [[noreturn]] void Fail(const std::string& what) const { throw Failure(what, line()); }

 private:
  bool Skip(bool matches) {
    if (matches) Take();
    return matches;
  }
  void Expect(bool matches, std::string_view what) {
    if (!matches) {
      Fail("expected '" + std::string(what) + "', found " + Describe(current()));
    }
    Take();
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Counts the levels of recursion that are open.
class DepthGuard {
 public:
  DepthGuard(int& depth, int limit, int line) : depth_(depth) {
    if (++depth_ > limit) {
      --depth_;
      throw LimitExceeded("the template is nested too deeply", line);
    }
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace hearth::jinja
