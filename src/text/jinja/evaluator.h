// What an expression gives.
#pragma once

#include "text/jinja/syntax/ast.h"
#include "text/jinja/values/runtime.h"
#include "text/jinja/variables.h"

namespace hearth::jinja {

class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime) : runtime_(runtime) {}

  // Throws Failure; runtime.line is the line then.
  Value Evaluate(const Expr& expr, Frame& frame);
  // `caller`: the caller of a {% call %} block; null where there is none.
  Value Function(const CallExpr& expr, Frame& frame, const Value* caller);
  // `block`: the text that a chain of filters is applied to; null where the chain has a value.
  Value Filter(const FilterExpr& expr, Frame& frame, const Text* block);

 private:
  Value EvaluateCompound(const Expr& expr, Frame& frame);
  static Value Constant(const ConstantExpr& expr);
  Value Name(const NameExpr& expr, Frame& frame);
  Value Sequence(const SequenceExpr& expr, Frame& frame);
  Value Dict(const DictExpr& expr, Frame& frame);
  Value Unary(const UnaryExpr& expr, Frame& frame);
  Value BinaryOperation(const BinaryExpr& expr, Frame& frame);
  Value Concat(const ConcatExpr& expr, Frame& frame);
  Value Comparison(const CompareExpr& expr, Frame& frame);
  Value Conditional(const ConditionalExpr& expr, Frame& frame);
  Value SliceOf(const SliceExpr& expr, Frame& frame);
  Value Test(const TestExpr& expr, Frame& frame);
  Arguments EvaluateArguments(const ArgumentExprs& arguments, Frame& frame);

  Runtime& runtime_;
};

}  // namespace hearth::jinja
