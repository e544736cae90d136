#include "text/jinja/syntax/expression_nodes.h"

#include <algorithm>

#include "text/jinja/syntax/parser.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {

void Deepen(Expr& expr, std::initializer_list<const Expr*> parts) {
  for (const Expr* part : parts) {
    if (part != nullptr) expr.depth = std::max(expr.depth, part->depth + 1);
  }
  if (expr.depth > kMaxTreeDepth) {
    throw LimitExceeded("the template is nested too deeply", expr.line);
  }
}

void Deepen(Expr& expr, const ArgumentExprs& arguments) {
  for (const ExprPtr& argument : arguments.positional) Deepen(expr, {argument.get()});
  for (const auto& keyword : arguments.keywords) Deepen(expr, {keyword.second.get()});
  Deepen(expr, {arguments.more_positional.get(), arguments.more_keywords.get()});
}

}  // namespace hearth::jinja
