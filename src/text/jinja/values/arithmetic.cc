// + - * / // % ** as Python computes them.
#include <fmt/format.h>

#include <cmath>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/formatting.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/operators.h"

namespace hearth::jinja {
namespace {

const char* Sign(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kFloorDiv:
      return "//";
    case BinaryOp::kMod:
      return "%";
    case BinaryOp::kPow:
      return "**";
    default:
      return "?";
  }
}

[[noreturn]] void FailOperands(BinaryOp op, const Value& a, const Value& b) {
  throw Failure(
      fmt::format("a {} and a {} do not go together with {}", TypeName(a), TypeName(b), Sign(op)));
}

[[noreturn]] void FailTooLarge() {
  throw Failure("a result has more than 38 digits, which is not supported");
}

// By reference: the value is only there after the operation that says whether it overflowed.
Int Checked(bool overflow, const Int& value) {
  if (overflow) FailTooLarge();
  return value;
}

Int FloorDivide(Int a, Int b) {
  if (b == -1) return Checked(__builtin_sub_overflow(static_cast<Int>(0), a, &a), a);
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int FloorModulo(Int a, Int b) {
  if (b == -1) return 0;
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloorModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloorDivide(double a, double b) {
  const double quotient = (a - FloorModulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Int IntPower(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailTooLarge();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailTooLarge();
  }
  return result;
}

[[noreturn]] void FailZero() { throw Failure("a division by zero"); }

Value OfInts(BinaryOp op, Int a, Int b) {
  Int result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Integer(Checked(__builtin_add_overflow(a, b, &result), result));
    case BinaryOp::kSub:
      return Value::Integer(Checked(__builtin_sub_overflow(a, b, &result), result));
    case BinaryOp::kMul:
      return Value::Integer(Checked(__builtin_mul_overflow(a, b, &result), result));
    case BinaryOp::kDiv:
      if (b == 0) FailZero();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
      if (b == 0) FailZero();
      return Value::Integer(FloorDivide(a, b));
    case BinaryOp::kMod:
      if (b == 0) FailZero();
      return Value::Integer(FloorModulo(a, b));
    default:
      break;
  }
  if (b >= 0) return Value::Integer(IntPower(a, b));
  if (a == 0) FailZero();
  return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
}

Value Power(double a, double b) {
  if (a == 0 && b < 0) FailZero();
  if (a < 0 && std::isfinite(b) && std::floor(b) != b) {
    throw Failure("complex numbers are not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    throw Failure("the result of ** is too large");
  }
  return Value::Float(result);
}

Value OfFloats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kPow:
      return Power(a, b);
    default:
      break;
  }
  if (b == 0) FailZero();
  if (op == BinaryOp::kDiv) return Value::Float(a / b);
  return Value::Float(op == BinaryOp::kMod ? FloorModulo(a, b) : FloorDivide(a, b));
}

// A text, list or tuple several times.
Value Repeat(Runtime& runtime, const Value& value, Int count) {
  count = std::max<Int>(count, 0);
  const Int length = Length(runtime, value);
  runtime.CheckSize(length > 0 ? std::min<Int>(count, Int{1} << 62) * length : 0);
  if (length == 0) count = 0;
  if (value.Is(Kind::kString)) {
    Text text;
    for (Int i = 0; i < count; ++i) text += value.text();
    return TextLike(runtime, value, std::move(text));
  }
  runtime.CheckSize(count * length * static_cast<Int>(sizeof(Value) / sizeof(char32_t)));
  Values items;
  for (Int i = 0; i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.Is(Kind::kList) ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.Is(Kind::kString) || IsSequence(value.kind());
}

Value Join(Runtime& runtime, const Value& a, const Value& b) {
  if (IsMarkup(a) || IsMarkup(b)) {
    Text text = EscapedStr(runtime, a) + EscapedStr(runtime, b);
    runtime.CheckSize(static_cast<Int>(text.size()));
    return runtime.Markup(std::move(text));
  }
  if (a.Is(Kind::kString)) {
    runtime.CheckSize(static_cast<Int>(a.text().size()) + static_cast<Int>(b.text().size()));
    return runtime.String(a.text() + b.text());
  }
  runtime.Spend(a.items().size() + b.items().size());
  Values items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.Is(Kind::kList) ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
}

}  // namespace

Value Binary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kMod && a.Is(Kind::kString)) {
    return TextLike(runtime, a, FormatPercent(runtime, a.text(), b, IsMarkup(a)).text());
  }
  if (a.Is(Kind::kUndefined)) FailUndefined(a);
  if (b.Is(Kind::kUndefined)) FailUndefined(b);
  if (IsInteger(a.kind()) && IsInteger(b.kind())) return OfInts(op, a.integer(), b.integer());
  if (IsNumber(a.kind()) && IsNumber(b.kind())) return OfFloats(op, a.real(), b.real());
  if (op == BinaryOp::kAdd && a.kind() == b.kind() && IsRepeatable(a)) return Join(runtime, a, b);
  if (op == BinaryOp::kMul && IsRepeatable(a) && IsInteger(b.kind())) {
    return Repeat(runtime, a, b.integer());
  }
  if (op == BinaryOp::kMul && IsRepeatable(b) && IsInteger(a.kind())) {
    return Repeat(runtime, b, a.integer());
  }
  FailOperands(op, a, b);
}

Value Negative(Runtime& /*runtime*/, const Value& value) {
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (IsInteger(value.kind())) {
    Int result = 0;
    const bool overflow = __builtin_sub_overflow(static_cast<Int>(0), value.integer(), &result);
    return Value::Integer(Checked(overflow, result));
  }
  if (value.Is(Kind::kFloat)) return Value::Float(-value.real());
  throw Failure(fmt::format("a {} cannot be negated", TypeName(value)));
}

Value Positive(Runtime& /*runtime*/, const Value& value) {
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (IsInteger(value.kind())) return Value::Integer(value.integer());
  if (value.Is(Kind::kFloat)) return value;
  throw Failure(fmt::format("a {} cannot follow the sign +", TypeName(value)));
}

}  // namespace hearth::jinja
