#include "text/jinja/syntax/postfix_parser.h"

#include <utility>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/syntax/expression_nodes.h"
#include "text/jinja/syntax/expression_parser.h"

namespace hearth::jinja {
namespace {

std::string DottedName(TokenStream& tokens) {
  std::string name = EncodeUtf8(tokens.TakeName());
  while (tokens.SkipOperator(".")) name += "." + EncodeUtf8(tokens.TakeName());
  return name;
}

bool IsTestArgument(const TokenStream& tokens) {
  switch (tokens.current().kind) {
    case TokenKind::kName:
      return !tokens.IsName("else") && !tokens.IsName("or") && !tokens.IsName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return tokens.IsOperator("[") || tokens.IsOperator("{");
  }
}

}  // namespace

ExprPtr PostfixParser::Apply(ExprPtr value) {
  for (;;) {
    if (tokens_.IsOperator(".")) {
      value = Dot(std::move(value));
    } else if (tokens_.IsOperator("[")) {
      value = Subscript(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = Call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr PostfixParser::ApplyFilters(ExprPtr value) {
  for (;;) {
    if (tokens_.IsOperator("|")) {
      tokens_.Take();
      value = Filter(std::move(value));
    } else if (tokens_.IsName("is")) {
      value = Test(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = Call(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr PostfixParser::Dot(ExprPtr value) {
  const int line = tokens_.Take().line;
  if (tokens_.Is(TokenKind::kName)) {
    auto expr = NewNode<AttributeExpr>(line);
    expr->object = std::move(value);
    expr->name = tokens_.Take().text;
    Deepen(*expr, {expr->object.get()});
    return expr;
  }
  if (!tokens_.Is(TokenKind::kInteger)) {
    tokens_.Fail("expected a name or a number after '.', found " + Describe(tokens_.current()));
  }
  auto expr = NewNode<ItemExpr>(line);
  auto key = NewNode<ConstantExpr>(line);
  key->value = tokens_.Take().integer;
  expr->object = std::move(value);
  expr->key = std::move(key);
  Deepen(*expr, {expr->object.get(), expr->key.get()});
  return expr;
}

ExprPtr PostfixParser::Subscript(ExprPtr value) {
  const int line = tokens_.Take().line;
  ExprPtr parts[3];
  int colons = 0;
  auto tuple = NewNode<SequenceExpr>(line);
  tuple->is_tuple = true;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.IsOperator(":") && colons < 2) {
      tokens_.Take();
      ++colons;
    } else if (tokens_.IsOperator(",")) {
      if (colons > 0 || parts[0] == nullptr)
        tokens_.Fail("slices of several dimensions are not supported");
      tokens_.Take();
      if (tokens_.IsOperator("]")) tokens_.Fail("expected an expression, found ']'");
      tuple->items.push_back(std::move(parts[0]));
    } else if (parts[colons] == nullptr) {
      parts[colons] = expressions_.Expression();
    } else {
      tokens_.Fail("expected ']', found " + Describe(tokens_.current()));
    }
  }
  tokens_.Take();
  if (colons > 0) {
    if (!tuple->items.empty()) tokens_.Fail("slices of several dimensions are not supported");
    auto expr = NewNode<SliceExpr>(line);
    expr->object = std::move(value);
    expr->start = std::move(parts[0]);
    expr->stop = std::move(parts[1]);
    expr->step = std::move(parts[2]);
    Deepen(*expr, {expr->object.get(), expr->start.get(), expr->stop.get(), expr->step.get()});
    return expr;
  }
  auto expr = NewNode<ItemExpr>(line);
  expr->object = std::move(value);
  if (tuple->items.empty() && parts[0] != nullptr) {
    expr->key = std::move(parts[0]);
  } else {
    if (parts[0] != nullptr) tuple->items.push_back(std::move(parts[0]));
    for (const ExprPtr& item : tuple->items) Deepen(*tuple, {item.get()});
    expr->key = std::move(tuple);
  }
  Deepen(*expr, {expr->object.get(), expr->key.get()});
  return expr;
}

ExprPtr PostfixParser::Call(ExprPtr callee) {
  auto expr = NewNode<CallExpr>(tokens_.line());
  expr->callee = std::move(callee);
  expr->arguments = Arguments();
  Deepen(*expr, {expr->callee.get()});
  Deepen(*expr, expr->arguments);
  return expr;
}

ArgumentExprs PostfixParser::Arguments() {
  const int line = tokens_.line();
  tokens_.ExpectOperator("(");
  ArgumentExprs arguments;
  bool need_comma = false;
  while (!tokens_.IsOperator(")")) {
    if (need_comma) {
      tokens_.ExpectOperator(",");
      if (tokens_.IsOperator(")")) break;
    }
    Argument(arguments, line);
    need_comma = true;
  }
  tokens_.Take();
  return arguments;
}

void PostfixParser::Argument(ArgumentExprs& arguments, int line) {
  const auto ensure = [line](bool in_order) {
    if (!in_order) throw Failure("the arguments of a call are in no valid order", line);
  };
  const bool dynamic = arguments.more_positional != nullptr || arguments.more_keywords != nullptr;
  if (tokens_.SkipOperator("*")) {
    ensure(!dynamic);
    arguments.more_positional = expressions_.Expression();
  } else if (tokens_.SkipOperator("**")) {
    ensure(arguments.more_keywords == nullptr);
    arguments.more_keywords = expressions_.Expression();
  } else if (tokens_.Is(TokenKind::kName) && TokenStream::IsOperator(tokens_.next(), "=")) {
    ensure(arguments.more_keywords == nullptr);
    Text name = tokens_.Take().text;
    tokens_.Take();
    for (const auto& keyword : arguments.keywords) {
      if (keyword.first == name) {
        throw Failure("the argument '" + EncodeUtf8(name) + "' is given twice", line);
      }
    }
    arguments.keywords.emplace_back(std::move(name), expressions_.Expression());
  } else {
    ensure(!dynamic && arguments.keywords.empty());
    arguments.positional.push_back(expressions_.Expression());
  }
}

ExprPtr PostfixParser::Filter(ExprPtr value) {
  auto expr = NewNode<FilterExpr>(tokens_.line());
  expr->operand = std::move(value);
  expr->name = DottedName(tokens_);
  if (tokens_.IsOperator("(")) expr->arguments = Arguments();
  if (!expressions_.around.in_branch && FindFilter(expr->name) == nullptr) {
    expressions_.around.unknown.emplace_back("there is no filter '" + expr->name + "'", expr->line);
  }
  Deepen(*expr, {expr->operand.get()});
  Deepen(*expr, expr->arguments);
  return expr;
}

ExprPtr PostfixParser::FilterChain(bool starts_with_name) {
  ExprPtr chain;
  if (starts_with_name) chain = Filter(nullptr);
  while (tokens_.SkipOperator("|")) chain = Filter(std::move(chain));
  return chain;
}

ExprPtr PostfixParser::Test(ExprPtr value) {
  const int line = tokens_.Take().line;
  const bool negated = tokens_.SkipName("not");
  auto expr = NewNode<TestExpr>(line);
  expr->operand = std::move(value);
  expr->name = DottedName(tokens_);
  if (tokens_.IsOperator("(")) {
    expr->arguments = Arguments();
  } else if (IsTestArgument(tokens_)) {
    if (tokens_.IsName("is")) tokens_.Fail("tests cannot be chained with 'is'");
    expr->arguments.positional.push_back(Apply(expressions_.Primary()));
  }
  if (!expressions_.around.in_branch && FindTest(expr->name) == nullptr) {
    expressions_.around.unknown.emplace_back("there is no test '" + expr->name + "'", line);
  }
  Deepen(*expr, {expr->operand.get()});
  Deepen(*expr, expr->arguments);
  if (!negated) return expr;
  auto negation = NewNode<UnaryExpr>(line);
  negation->op = UnaryOp::kNot;
  negation->operand = std::move(expr);
  Deepen(*negation, {negation->operand.get()});
  return negation;
}

}  // namespace hearth::jinja
