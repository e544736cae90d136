// What follows a value in an expression: attributes, items, calls, filters, tests.
#pragma once

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/token_stream.h"

namespace hearth::jinja {

class ExpressionParser;

class PostfixParser {
 public:
  // `expressions` parses keys and arguments, and knows what is around them. Both must outlive this.
  PostfixParser(TokenStream& tokens, ExpressionParser& expressions)
      : tokens_(tokens), expressions_(expressions) {}

  // `value` with the attributes, items and calls that follow it.
  ExprPtr Apply(ExprPtr value);
  // `value` with the filters and tests that follow it, and calls of what they give.
  ExprPtr ApplyFilters(ExprPtr value);
  // See ExpressionParser::FilterChain.
  ExprPtr FilterChain(bool starts_with_name);

 private:
  ExprPtr Dot(ExprPtr value);
  ExprPtr Subscript(ExprPtr value);
  ExprPtr Call(ExprPtr callee);
  ExprPtr Filter(ExprPtr value);
  ExprPtr Test(ExprPtr value);
  ArgumentExprs Arguments();
  void Argument(ArgumentExprs& arguments, int line);

  TokenStream& tokens_;
  ExpressionParser& expressions_;
};

}  // namespace hearth::jinja
