// Expressions, by recursive descent with Jinja's precedence.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace hearth::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExprPtr Expression(bool with_condition = true);
  // One expression, or several separated by commas as a tuple. `may_be_empty` (in parentheses)
  // allows "()".
  ExprPtr Tuple(bool with_condition = true, bool may_be_empty = false);
  // What may stand on the left of "=": names and tuples of them, "name.attribute" where
  // `with_namespace`.
  ExprPtr Target(bool with_namespace);
  std::unique_ptr<NameExpr> TargetName();
  // "| name(...) | name ..." applied to nothing; null where none stands here. The first "|" is left
  // out where `starts_with_name`.
  ExprPtr FilterChain(bool starts_with_name);

  // Complaints about filters and tests that do not exist. Under an "if" they are no error until
  // they are called.
  std::vector<Failure> unknown;
  bool in_branch = false;
  // Names of the innermost macro that have a meaning of their own, when its body reads them.
  struct MacroUses {
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
    MacroUses* outer = nullptr;
  };
  MacroUses* macro_uses = nullptr;
  int loops_around = 0;  // "loop" may not be assigned to inside
  int depth = 0;         // of recursion, statements included

 private:
  ExprPtr Condition();
  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Compare();
  bool TakeCompareOp(CompareOp* op);
  ExprPtr Sum();
  ExprPtr Concat();
  ExprPtr Product();
  ExprPtr Power();
  ExprPtr Unary(bool with_filter = true);
  ExprPtr Primary(bool with_namespace = false);
  ExprPtr Name(bool with_namespace);
  ExprPtr String();
  ExprPtr List();
  ExprPtr Dict();
  ExprPtr Postfix(ExprPtr value);
  ExprPtr PostfixFilters(ExprPtr value);
  ExprPtr Dot(ExprPtr value);
  ExprPtr Subscript(ExprPtr value);
  ExprPtr Call(ExprPtr callee);
  ExprPtr Filter(ExprPtr value);
  ExprPtr Test(ExprPtr value);
  bool IsTestArgument() const;
  std::string DottedName();
  ArgumentExprs Arguments();
  void Argument(ArgumentExprs& arguments, int line);
  ExprPtr Binary(BinaryOp op, ExprPtr left, ExprPtr right, int line);
  bool IsTupleEnd() const;
  void CheckTarget(const Expr& target) const;
  void NoteUse(const Text& name);

  // `expr`, whose parts these are (null ones do not count); refused where the tree gets too deep.
  void Deepen(Expr& expr, std::initializer_list<const Expr*> parts) const;
  void Deepen(Expr& expr, const ArgumentExprs& arguments) const;

  TokenStream& tokens_;
};

}  // namespace hearth::jinja
