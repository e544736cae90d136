#include "text/jinja/evaluator.h"

#include <utility>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {

Value Evaluator::Evaluate(const Expr& expr, Frame& frame) {
  const DepthScope depth(runtime_);
  runtime_.Spend(1);
  runtime_.line = expr.line;
  switch (expr.kind) {
    case ExprKind::kConstant:
      return Constant(static_cast<const ConstantExpr&>(expr));
    case ExprKind::kName:
      return Name(static_cast<const NameExpr&>(expr), frame);
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      const Value object = Evaluate(*attribute.object, frame);
      runtime_.line = expr.line;
      return GetAttribute(runtime_, object, attribute.name);
    }
    case ExprKind::kItem: {
      const auto& item = static_cast<const ItemExpr&>(expr);
      const Value object = Evaluate(*item.object, frame);
      const Value key = Evaluate(*item.key, frame);
      runtime_.line = expr.line;
      return GetItem(runtime_, object, key);
    }
    default:
      return EvaluateCompound(expr, frame);
  }
}

Value Evaluator::EvaluateCompound(const Expr& expr, Frame& frame) {
  switch (expr.kind) {
    case ExprKind::kSequence:
      return Sequence(static_cast<const SequenceExpr&>(expr), frame);
    case ExprKind::kDict:
      return Dict(static_cast<const DictExpr&>(expr), frame);
    case ExprKind::kUnary:
      return Unary(static_cast<const UnaryExpr&>(expr), frame);
    case ExprKind::kBinary:
      return BinaryOperation(static_cast<const BinaryExpr&>(expr), frame);
    case ExprKind::kConcat:
      return Concat(static_cast<const ConcatExpr&>(expr), frame);
    case ExprKind::kCompare:
      return Comparison(static_cast<const CompareExpr&>(expr), frame);
    case ExprKind::kConditional:
      return Conditional(static_cast<const ConditionalExpr&>(expr), frame);
    case ExprKind::kSlice:
      return SliceOf(static_cast<const SliceExpr&>(expr), frame);
    case ExprKind::kCall:
      return Function(static_cast<const CallExpr&>(expr), frame, nullptr);
    case ExprKind::kFilter:
      return Filter(static_cast<const FilterExpr&>(expr), frame, nullptr);
    case ExprKind::kTest:
      return Test(static_cast<const TestExpr&>(expr), frame);
    default:
      throw Failure("an expression of an unknown kind");
  }
}

Value Evaluator::Constant(const ConstantExpr& expr) {
  struct Visitor {
    Value operator()(std::monostate) const { return Value::None(); }
    Value operator()(bool value) const { return Value::Bool(value); }
    Value operator()(Int value) const { return Value::Integer(value); }
    Value operator()(double value) const { return Value::Float(value); }
    Value operator()(const std::unique_ptr<const StringObject>& value) const {
      return Value(value.get());
    }
  };
  return std::visit(Visitor{}, expr.value);
}

Value Evaluator::Name(const NameExpr& expr, Frame& frame) {
  const Value& value = frame.Slot(expr.slot);
  if (!value.Is(Kind::kMissing)) return value;
  return runtime_.Undefined("'" + EncodeUtf8(expr.name) + "' is undefined");
}

Value Evaluator::Sequence(const SequenceExpr& expr, Frame& frame) {
  Values items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) items.push_back(Evaluate(*item, frame));
  return expr.is_tuple ? runtime_.Tuple(std::move(items)) : runtime_.List(std::move(items));
}

Value Evaluator::Dict(const DictExpr& expr, Frame& frame) {
  auto* dict = runtime_.heap().New<DictObject>();
  for (const auto& [key_expr, value_expr] : expr.items) {
    const Value key = Evaluate(*key_expr, frame);
    const Value value = Evaluate(*value_expr, frame);
    dict->Set(runtime_, key, value);
  }
  return Value(dict);
}

Value Evaluator::Unary(const UnaryExpr& expr, Frame& frame) {
  const Value operand = Evaluate(*expr.operand, frame);
  runtime_.line = expr.line;
  switch (expr.op) {
    case UnaryOp::kNot:
      return Value::Bool(!IsTrue(runtime_, operand));
    case UnaryOp::kNegative:
      return Negative(runtime_, operand);
    case UnaryOp::kPositive:
      return Positive(runtime_, operand);
  }
  return operand;
}

Value Evaluator::BinaryOperation(const BinaryExpr& expr, Frame& frame) {
  const Value left = Evaluate(*expr.left, frame);
  if (expr.op == BinaryOp::kAnd || expr.op == BinaryOp::kOr) {
    const bool decided = IsTrue(runtime_, left) == (expr.op == BinaryOp::kOr);
    return decided ? left : Evaluate(*expr.right, frame);
  }
  const Value right = Evaluate(*expr.right, frame);
  runtime_.line = expr.line;
  return Binary(runtime_, expr.op, left, right);
}

Value Evaluator::Concat(const ConcatExpr& expr, Frame& frame) {
  Text text;
  for (const ExprPtr& part : expr.parts) {
    const Text piece = Str(runtime_, Evaluate(*part, frame));
    runtime_.CheckSize(static_cast<Int>(text.size() + piece.size()));
    text += piece;
  }
  return runtime_.String(std::move(text));
}

Value Evaluator::Comparison(const CompareExpr& expr, Frame& frame) {
  Value left = Evaluate(*expr.first, frame);
  for (const auto& [op, operand] : expr.rest) {
    const Value right = Evaluate(*operand, frame);
    runtime_.line = expr.line;
    if (!Compare(runtime_, op, left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Evaluator::Conditional(const ConditionalExpr& expr, Frame& frame) {
  if (IsTrue(runtime_, Evaluate(*expr.test, frame))) return Evaluate(*expr.then, frame);
  if (expr.otherwise != nullptr) return Evaluate(*expr.otherwise, frame);
  return runtime_.Undefined("an 'if' without an 'else' has no value");
}

Value Evaluator::SliceOf(const SliceExpr& expr, Frame& frame) {
  const Value object = Evaluate(*expr.object, frame);
  const auto bound = [&](const ExprPtr& part) {
    return part == nullptr ? Value::None() : Evaluate(*part, frame);
  };
  const Value start = bound(expr.start);
  const Value stop = bound(expr.stop);
  const Value step = bound(expr.step);
  runtime_.line = expr.line;
  return Slice(runtime_, object, start, stop, step);
}

Arguments Evaluator::EvaluateArguments(const ArgumentExprs& exprs, Frame& frame) {
  Arguments arguments;
  for (const ExprPtr& expr : exprs.positional) {
    arguments.positional.push_back(Evaluate(*expr, frame));
  }
  const auto add_keyword = [&](const Text& name, const Value& value) {
    for (const auto& keyword : arguments.keywords) {
      if (keyword.first == name) {
        throw Failure("the argument '" + EncodeUtf8(name) + "' is given twice");
      }
    }
    arguments.keywords.emplace_back(name, value);
  };
  for (const auto& [name, expr] : exprs.keywords) add_keyword(name, Evaluate(*expr, frame));
  if (exprs.more_positional != nullptr) {
    const Values more = Items(runtime_, Evaluate(*exprs.more_positional, frame));
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (exprs.more_keywords != nullptr) {
    const Value more = Evaluate(*exprs.more_keywords, frame);
    if (!more.Is(Kind::kDict)) throw Failure("what follows ** must be a dict");
    for (const auto& [key, value] : more.dict().items) {
      if (!key.Is(Kind::kString)) throw Failure("the keys of what follows ** must be texts");
      runtime_.Spend(arguments.keywords.size());
      add_keyword(key.text(), value);
    }
  }
  return arguments;
}

Value Evaluator::Function(const CallExpr& expr, Frame& frame, const Value* caller) {
  const Value callee = Evaluate(*expr.callee, frame);
  Arguments arguments = EvaluateArguments(expr.arguments, frame);
  if (caller != nullptr) arguments.keywords.emplace_back(Own("caller"), *caller);
  runtime_.line = expr.line;
  return Call(runtime_, callee, arguments);
}

Value Evaluator::Filter(const FilterExpr& expr, Frame& frame, const Text* block) {
  Value value;
  if (expr.operand == nullptr) {
    value = runtime_.String(*block);
  } else if (block != nullptr) {
    value = Filter(static_cast<const FilterExpr&>(*expr.operand), frame, block);
  } else {
    value = Evaluate(*expr.operand, frame);
  }
  const Arguments arguments = EvaluateArguments(expr.arguments, frame);
  runtime_.line = expr.line;
  const FilterFn filter = FindFilter(expr.name);
  if (filter == nullptr) throw Failure("there is no filter '" + expr.name + "'");
  return filter(runtime_, value, arguments);
}

Value Evaluator::Test(const TestExpr& expr, Frame& frame) {
  const Value value = Evaluate(*expr.operand, frame);
  const Arguments arguments = EvaluateArguments(expr.arguments, frame);
  runtime_.line = expr.line;
  const TestFn test = FindTest(expr.name);
  if (test == nullptr) throw Failure("there is no test '" + expr.name + "'");
  return Value::Bool(test(runtime_, value, arguments));
}

}  // namespace hearth::jinja
