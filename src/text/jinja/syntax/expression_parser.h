// Expressions, by recursive descent with Jinja's precedence.
#pragma once

#include <memory>
#include <vector>

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/postfix_parser.h"
#include "text/jinja/syntax/token_stream.h"

namespace hearth::jinja {

// Names that have a meaning of their own in a macro, when its body reads them.
struct MacroUses {
  bool caller = false;
  bool kwargs = false;
  bool varargs = false;
  MacroUses* outer = nullptr;  // of the macro around

  // `name` is read in the macro, and so in all around it.
  void Note(const Text& name);
};

// Where in a template an expression stands; statements change it as they open and close.
struct Surroundings {
  // Complaints about filters and tests that do not exist. Under an "if" they are no error until
  // they are called.
  std::vector<Failure> unknown;
  bool in_branch = false;
  MacroUses* macro_uses = nullptr;  // of the innermost macro
  int loops_around = 0;             // "loop" may not be assigned to inside
  int depth = 0;                    // of recursion, statements included
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens), postfix_(tokens, *this) {}
  ExpressionParser(const ExpressionParser&) = delete;
  ExpressionParser& operator=(const ExpressionParser&) = delete;

  ExprPtr Expression(bool with_condition = true);
  // One expression, or several separated by commas as a tuple. `may_be_empty` (in parentheses)
  // allows "()".
  ExprPtr Tuple(bool with_condition = true, bool may_be_empty = false);
  // A name, a constant, or what stands in brackets. `with_namespace` allows "name.attribute".
  ExprPtr Primary(bool with_namespace = false);
  // What may stand on the left of "=": names and tuples of them, "name.attribute" where
  // `with_namespace`.
  ExprPtr Target(bool with_namespace);
  std::unique_ptr<NameExpr> TargetName();
  // "| name(...) | name ..." applied to nothing; null where none stands here. The first "|" is left
  // out where `starts_with_name`.
  ExprPtr FilterChain(bool starts_with_name) { return postfix_.FilterChain(starts_with_name); }

  Surroundings around;

 private:
  ExprPtr Condition();
  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Compare();
  ExprPtr Sum();
  ExprPtr Concat();
  ExprPtr Product();
  ExprPtr Power();
  ExprPtr Unary(bool with_filter = true);
  ExprPtr Name(bool with_namespace);
  ExprPtr String();
  ExprPtr List();
  ExprPtr Dict();
  void CheckTarget(const Expr& target) const;

  TokenStream& tokens_;
  PostfixParser postfix_;
};

}  // namespace hearth::jinja
