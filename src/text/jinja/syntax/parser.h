// Tokens to a tree, and names to slots.
#pragma once

#include <string_view>

#include "text/jinja/syntax/ast.h"

namespace hearth::jinja {

// Of the tree; what passes it is refused, so that no recursion over it takes much of a stack.
inline constexpr int kMaxTreeDepth = 200;
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

// The tree of a template. Throws Failure with the line for what is not valid, or not supported.
TemplateAst ParseTemplate(std::string_view source_utf8);

// Fills in Scope and NameExpr::slot everywhere, as Jinja's compiler binds names: a name that its
// frame sets before it ever reads it begins undefined, others begin as in the frame outside or in
// the context.
void ResolveNames(TemplateAst& tree);

}  // namespace hearth::jinja
