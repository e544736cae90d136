// Makes the nodes of expressions, and keeps trees from getting too deep.
#pragma once

#include <initializer_list>
#include <memory>

#include "text/jinja/syntax/ast.h"

namespace hearth::jinja {

template <typename T>
std::unique_ptr<T> NewNode(int line) {
  return std::make_unique<T>(line);
}

// Enters how deep `expr` is, which has these parts (null ones do not count). Throws LimitExceeded
// beyond kMaxTreeDepth.
void Deepen(Expr& expr, std::initializer_list<const Expr*> parts);
void Deepen(Expr& expr, const ArgumentExprs& arguments);

}  // namespace hearth::jinja
