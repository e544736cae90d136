#include "text/jinja/syntax/expression_parser.h"

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "text/jinja/syntax/expression_nodes.h"
#include "text/jinja/syntax/parser.h"

namespace hearth::jinja {
namespace {

ExprPtr Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line) {
  auto expr = NewNode<BinaryExpr>(line);
  expr->op = op;
  expr->left = std::move(left);
  expr->right = std::move(right);
  Deepen(*expr, {expr->left.get(), expr->right.get()});
  return expr;
}

struct OperatorText {
  std::string_view text;
  BinaryOp op;
};

// The operator that stands next, taken; nothing where it is none of `ops`.
std::optional<BinaryOp> TakeOperator(TokenStream& tokens, std::initializer_list<OperatorText> ops) {
  for (const OperatorText& candidate : ops) {
    if (tokens.SkipOperator(candidate.text)) return candidate.op;
  }
  return std::nullopt;
}

std::optional<BinaryOp> TakeWord(TokenStream& tokens, const OperatorText& word) {
  return tokens.SkipName(word.text) ? std::optional(word.op) : std::nullopt;
}

// Operands with operators of one precedence between them, grouped from the left. `take_op` takes
// such an operator where one stands next.
template <typename Operand, typename TakeOp>
ExprPtr GroupFromLeft(const TokenStream& tokens, Operand operand, TakeOp take_op) {
  int line = tokens.line();
  ExprPtr left = operand();
  while (const std::optional<BinaryOp> op = take_op()) {
    ExprPtr right = operand();
    left = Binary(*op, std::move(left), std::move(right), line);
    line = tokens.line();
  }
  return left;
}

bool TakeCompareOp(TokenStream& tokens, CompareOp* op) {
  constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  for (const auto& [text, its_op] : kOps) {
    if (!tokens.SkipOperator(text)) continue;
    *op = its_op;
    return true;
  }
  if (tokens.SkipName("in")) {
    *op = CompareOp::kIn;
    return true;
  }
  if (tokens.IsName("not") && TokenStream::IsName(tokens.next(), "in")) {
    tokens.Take();
    tokens.Take();
    *op = CompareOp::kNotIn;
    return true;
  }
  return false;
}

bool IsTupleEnd(const TokenStream& tokens) {
  return tokens.Is(TokenKind::kVariableEnd) || tokens.Is(TokenKind::kBlockEnd) ||
         tokens.IsOperator(")");
}

}  // namespace

void MacroUses::Note(const Text& name) {
  const bool is_caller = name == Own("caller");
  const bool is_kwargs = name == Own("kwargs");
  const bool is_varargs = name == Own("varargs");
  if (!is_caller && !is_kwargs && !is_varargs) return;
  for (MacroUses* macro = this; macro != nullptr; macro = macro->outer) {
    macro->caller = macro->caller || is_caller;
    macro->kwargs = macro->kwargs || is_kwargs;
    macro->varargs = macro->varargs || is_varargs;
  }
}

ExprPtr ExpressionParser::Expression(bool with_condition) {
  const DepthGuard guard(around.depth, kMaxTreeDepth, tokens_.line());
  return with_condition ? Condition() : Or();
}

ExprPtr ExpressionParser::Condition() {
  const DepthGuard guard(around.depth, kMaxTreeDepth, tokens_.line());
  const bool was_in_branch = around.in_branch;
  const size_t known_to_fail = around.unknown.size();
  ExprPtr value = Or();
  while (tokens_.SkipName("if")) {
    auto expr = NewNode<ConditionalExpr>(value->line);
    // All of it is a branch, what stands in front of the "if" too.
    around.in_branch = true;
    around.unknown.resize(known_to_fail, Failure(""));
    expr->then = std::move(value);
    expr->test = Or();
    if (tokens_.SkipName("else")) expr->otherwise = Condition();
    Deepen(*expr, {expr->then.get(), expr->test.get(), expr->otherwise.get()});
    value = std::move(expr);
  }
  around.in_branch = was_in_branch;
  return value;
}

ExprPtr ExpressionParser::Or() {
  return GroupFromLeft(
      tokens_, [&] { return And(); },
      [&] {
        return TakeWord(tokens_, {"or", BinaryOp::kOr});
      });
}

ExprPtr ExpressionParser::And() {
  return GroupFromLeft(
      tokens_, [&] { return Not(); },
      [&] {
        return TakeWord(tokens_, {"and", BinaryOp::kAnd});
      });
}

ExprPtr ExpressionParser::Not() {
  if (!tokens_.IsName("not")) return Compare();
  const DepthGuard guard(around.depth, kMaxTreeDepth, tokens_.line());
  auto expr = NewNode<UnaryExpr>(tokens_.Take().line);
  expr->op = UnaryOp::kNot;
  expr->operand = Not();
  Deepen(*expr, {expr->operand.get()});
  return expr;
}

ExprPtr ExpressionParser::Compare() {
  const int line = tokens_.line();
  ExprPtr first = Sum();
  auto expr = NewNode<CompareExpr>(line);
  CompareOp op = CompareOp::kEq;
  while (TakeCompareOp(tokens_, &op)) {
    expr->rest.emplace_back(op, Sum());
    Deepen(*expr, {expr->rest.back().second.get()});
  }
  if (expr->rest.empty()) return first;
  expr->first = std::move(first);
  Deepen(*expr, {expr->first.get()});
  return expr;
}

ExprPtr ExpressionParser::Sum() {
  return GroupFromLeft(
      tokens_, [&] { return Concat(); },
      [&] {
        return TakeOperator(tokens_, {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}});
      });
}

ExprPtr ExpressionParser::Concat() {
  auto expr = NewNode<ConcatExpr>(tokens_.line());
  do {
    expr->parts.push_back(Product());
    Deepen(*expr, {expr->parts.back().get()});
  } while (tokens_.SkipOperator("~"));
  if (expr->parts.size() == 1) return std::move(expr->parts[0]);
  return expr;
}

ExprPtr ExpressionParser::Product() {
  return GroupFromLeft(
      tokens_, [&] { return Power(); },
      [&] {
        return TakeOperator(tokens_, {{"*", BinaryOp::kMul},
                                      {"/", BinaryOp::kDiv},
                                      {"//", BinaryOp::kFloorDiv},
                                      {"%", BinaryOp::kMod}});
      });
}

ExprPtr ExpressionParser::Power() {
  return GroupFromLeft(
      tokens_, [&] { return Unary(); },
      [&] {
        return TakeOperator(tokens_, {{"**", BinaryOp::kPow}});
      });
}

ExprPtr ExpressionParser::Unary(bool with_filter) {
  ExprPtr value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const DepthGuard guard(around.depth, kMaxTreeDepth, tokens_.line());
    const Token sign = tokens_.Take();
    auto expr = NewNode<UnaryExpr>(sign.line);
    expr->op = Plain(sign.text[0]) == '-' ? UnaryOp::kNegative : UnaryOp::kPositive;
    expr->operand = Unary(false);
    Deepen(*expr, {expr->operand.get()});
    value = std::move(expr);
  } else {
    value = Primary();
  }
  value = postfix_.Apply(std::move(value));
  return with_filter ? postfix_.ApplyFilters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::Primary(bool with_namespace) {
  const DepthGuard guard(around.depth, kMaxTreeDepth, tokens_.line());
  if (tokens_.Is(TokenKind::kName)) return Name(with_namespace);
  if (tokens_.Is(TokenKind::kString)) return String();
  if (tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat)) {
    const Token token = tokens_.Take();
    auto expr = NewNode<ConstantExpr>(token.line);
    if (token.kind == TokenKind::kInteger) {
      expr->value = token.integer;
    } else {
      expr->value = token.real;
    }
    return expr;
  }
  if (tokens_.IsOperator("(")) {
    tokens_.Take();
    ExprPtr value = Tuple(true, true);
    tokens_.ExpectOperator(")");
    return value;
  }
  if (tokens_.IsOperator("[")) return List();
  if (tokens_.IsOperator("{")) return Dict();
  tokens_.Fail("expected an expression, found " + Describe(tokens_.current()));
}

ExprPtr ExpressionParser::Name(bool with_namespace) {
  const Token token = tokens_.Take();
  const std::string name = EncodeUtf8(token.text);
  const bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False") {
    auto expr = NewNode<ConstantExpr>(token.line);
    expr->value = is_true;
    return expr;
  }
  if (name == "none" || name == "None") return NewNode<ConstantExpr>(token.line);
  auto expr = NewNode<NameExpr>(token.line);
  expr->name = token.text;
  if (with_namespace && tokens_.SkipOperator(".")) {
    expr->attribute = tokens_.TakeName();
  } else {
    if (around.macro_uses != nullptr) around.macro_uses->Note(expr->name);
  }
  return expr;
}

ExprPtr ExpressionParser::String() {
  auto expr = NewNode<ConstantExpr>(tokens_.line());
  Text text;
  while (tokens_.Is(TokenKind::kString)) text += tokens_.Take().text;
  expr->value = std::make_unique<const StringObject>(std::move(text));
  return expr;
}

ExprPtr ExpressionParser::List() {
  auto expr = NewNode<SequenceExpr>(tokens_.Take().line);
  while (!tokens_.IsOperator("]")) {
    if (!expr->items.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("]")) break;
    expr->items.push_back(Expression());
    Deepen(*expr, {expr->items.back().get()});
  }
  tokens_.Take();
  return expr;
}

ExprPtr ExpressionParser::Dict() {
  auto expr = NewNode<DictExpr>(tokens_.Take().line);
  while (!tokens_.IsOperator("}")) {
    if (!expr->items.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("}")) break;
    ExprPtr key = Expression();
    tokens_.ExpectOperator(":");
    ExprPtr value = Expression();
    Deepen(*expr, {key.get(), value.get()});
    expr->items.emplace_back(std::move(key), std::move(value));
  }
  tokens_.Take();
  return expr;
}

ExprPtr ExpressionParser::Tuple(bool with_condition, bool may_be_empty) {
  auto tuple = NewNode<SequenceExpr>(tokens_.line());
  tuple->is_tuple = true;
  bool has_comma = false;
  while (!IsTupleEnd(tokens_)) {
    tuple->items.push_back(Expression(with_condition));
    Deepen(*tuple, {tuple->items.back().get()});
    if (!tokens_.SkipOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && !tuple->items.empty()) return std::move(tuple->items[0]);
  if (!has_comma && !may_be_empty) {
    tokens_.Fail("expected an expression, found " + Describe(tokens_.current()));
  }
  return tuple;
}

ExprPtr ExpressionParser::Target(bool with_namespace) {
  auto tuple = NewNode<SequenceExpr>(tokens_.line());
  tuple->is_tuple = true;
  bool has_comma = false;
  MacroUses* const uses = std::exchange(around.macro_uses, nullptr);  // written, not read
  while (!IsTupleEnd(tokens_)) {
    tuple->items.push_back(Primary(with_namespace));
    Deepen(*tuple, {tuple->items.back().get()});
    if (!tokens_.SkipOperator(",")) break;
    has_comma = true;
  }
  around.macro_uses = uses;
  if (tuple->items.empty()) {
    tokens_.Fail("expected a name to assign to, found " + Describe(tokens_.current()));
  }
  ExprPtr target = has_comma ? ExprPtr(std::move(tuple)) : std::move(tuple->items[0]);
  CheckTarget(*target);
  return target;
}

void ExpressionParser::CheckTarget(const Expr& target) const {
  if (target.kind == ExprKind::kName) {
    const auto& name = static_cast<const NameExpr&>(target);
    if (around.loops_around > 0 && name.attribute.empty() && name.name == Own("loop")) {
      throw Failure("the special variable 'loop' cannot be assigned to", target.line);
    }
    return;
  }
  const auto* tuple =
      target.kind == ExprKind::kSequence ? static_cast<const SequenceExpr*>(&target) : nullptr;
  if (tuple == nullptr || !tuple->is_tuple) {
    throw Failure("this expression cannot be assigned to", target.line);
  }
  for (const ExprPtr& item : tuple->items) CheckTarget(*item);
}

std::unique_ptr<NameExpr> ExpressionParser::TargetName() {
  auto expr = NewNode<NameExpr>(tokens_.line());
  expr->name = tokens_.TakeName();
  const std::string name = EncodeUtf8(expr->name);
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) tokens_.Fail("'" + name + "' cannot be assigned to");
  }
  CheckTarget(*expr);
  return expr;
}

}  // namespace hearth::jinja
