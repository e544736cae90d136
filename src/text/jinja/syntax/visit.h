// Walks over the parts of expressions.
#pragma once

#include "text/jinja/syntax/ast.h"

namespace hearth::jinja {

template <typename Visit>
void VisitArguments(ArgumentExprs& arguments, Visit visit) {
  for (ExprPtr& argument : arguments.positional) visit(argument.get());
  for (auto& keyword : arguments.keywords) visit(keyword.second.get());
  visit(arguments.more_positional.get());
  visit(arguments.more_keywords.get());
}

template <typename Visit>
void VisitSimpleParts(Expr& expr, Visit visit) {
  switch (expr.kind) {
    case ExprKind::kSequence:
      for (ExprPtr& item : static_cast<SequenceExpr&>(expr).items) visit(item.get());
      break;
    case ExprKind::kDict:
      for (auto& [key, value] : static_cast<DictExpr&>(expr).items) {
        visit(key.get());
        visit(value.get());
      }
      break;
    case ExprKind::kUnary:
      visit(static_cast<UnaryExpr&>(expr).operand.get());
      break;
    case ExprKind::kBinary:
      visit(static_cast<BinaryExpr&>(expr).left.get());
      visit(static_cast<BinaryExpr&>(expr).right.get());
      break;
    case ExprKind::kConcat:
      for (ExprPtr& part : static_cast<ConcatExpr&>(expr).parts) visit(part.get());
      break;
    case ExprKind::kCompare:
      visit(static_cast<CompareExpr&>(expr).first.get());
      for (auto& operand : static_cast<CompareExpr&>(expr).rest) visit(operand.second.get());
      break;
    default:
      break;
  }
}

// Calls `visit` with each direct part of the expression; parts that are left out are null.
template <typename Visit>
void VisitParts(Expr& expr, Visit visit) {
  switch (expr.kind) {
    case ExprKind::kConditional: {
      auto& conditional = static_cast<ConditionalExpr&>(expr);
      visit(conditional.test.get());
      visit(conditional.then.get());
      visit(conditional.otherwise.get());
      break;
    }
    case ExprKind::kAttribute:
      visit(static_cast<AttributeExpr&>(expr).object.get());
      break;
    case ExprKind::kItem:
      visit(static_cast<ItemExpr&>(expr).object.get());
      visit(static_cast<ItemExpr&>(expr).key.get());
      break;
    case ExprKind::kSlice: {
      auto& slice = static_cast<SliceExpr&>(expr);
      for (Expr* part :
           {slice.object.get(), slice.start.get(), slice.stop.get(), slice.step.get()}) {
        visit(part);
      }
      break;
    }
    case ExprKind::kCall:
      visit(static_cast<CallExpr&>(expr).callee.get());
      VisitArguments(static_cast<CallExpr&>(expr).arguments, visit);
      break;
    case ExprKind::kFilter:
      visit(static_cast<FilterExpr&>(expr).operand.get());
      VisitArguments(static_cast<FilterExpr&>(expr).arguments, visit);
      break;
    case ExprKind::kTest:
      visit(static_cast<TestExpr&>(expr).operand.get());
      VisitArguments(static_cast<TestExpr&>(expr).arguments, visit);
      break;
    default:
      VisitSimpleParts(expr, visit);
      break;
  }
}

}  // namespace hearth::jinja
