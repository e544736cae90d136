// What stands after "is".
#include <algorithm>

#include "base/error.h"
#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

template <bool (*kTest)(const Value&)>
bool Plainly(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
  Parameters("this test", arguments, {});
  return kTest(value);
}

bool IsDefined(const Value& value) { return !value.Is(Kind::kUndefined); }
bool IsUndefined(const Value& value) { return value.Is(Kind::kUndefined); }
bool IsNone(const Value& value) { return value.Is(Kind::kNone); }
bool IsBoolean(const Value& value) { return value.Is(Kind::kBool); }
bool IsFalseItself(const Value& value) { return value.Is(Kind::kBool) && !value.boolean(); }
bool IsTrueItself(const Value& value) { return value.Is(Kind::kBool) && value.boolean(); }
bool IsIntegerNumber(const Value& value) { return value.Is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.Is(Kind::kFloat); }
bool IsAnyNumber(const Value& value) { return IsNumber(value.kind()); }
bool IsString(const Value& value) { return value.Is(Kind::kString); }
bool IsMapping(const Value& value) { return value.Is(Kind::kDict); }
bool IsEscaped(const Value& value) { return IsMarkup(value); }
bool IsCallable(const Value& value) {
  return value.Is(Kind::kUndefined) || (value.Is(Kind::kObject) && value.object().IsCallable());
}

bool IsSequenceTest(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("sequence", arguments, {});
  return !value.Is(Kind::kDictView) && !value.Is(Kind::kObject) && HasLength(runtime, value);
}

Int Remainder(Runtime& runtime, const Value& value, const Value& divisor) {
  const Value rest = Binary(runtime, BinaryOp::kMod, value, divisor);
  if (!IsNumber(rest.kind())) throw Failure("this test needs a number, not a " + TypeName(value));
  return rest.real() == 0 ? 0 : rest.real() == 1 ? 1 : 2;
}

template <int kRest>
bool HasRemainder(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("this test", arguments, {});
  return Remainder(runtime, value, Value::Integer(2)) == kRest;
}

bool IsDivisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("divisibleby", arguments, {"num"}, 1);
  return Remainder(runtime, value, parameters[0]) == 0;
}

template <bool kUpper>
bool HasCase(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("this test", arguments, {});
  const auto method =
      FindMethod(runtime, AsString(runtime, value), Own(kUpper ? "isupper" : "islower"));
  return Call(runtime, *method, {}).boolean();
}

template <CompareOp kOp>
bool Compares(Runtime& runtime, const Value& value, const Arguments& arguments) {
  RefuseKeywords("a comparison", arguments);
  const Parameters parameters("a comparison", arguments, {"other"}, 1);
  return Compare(runtime, kOp, value, parameters[0]);
}

bool IsIn(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("in", arguments, {"seq"}, 1);
  return Contains(runtime, parameters[0], value);
}

bool IsSame(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("sameas", arguments, {"other"}, 1);
  const Value& other = parameters[0];
  if (value.kind() != other.kind()) return false;
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString:
      return Equal(runtime, value, other);
    default:
      return value.identity() == other.identity();
  }
}

bool IsIterableTest(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
  Parameters("iterable", arguments, {});
  return IsIterable(value);
}

bool NamesFilter(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
  Parameters("filter", arguments, {});
  return value.Is(Kind::kString) && FindFilter(EncodeUtf8(value.text())) != nullptr;
}

bool NamesTest(Runtime& /*runtime*/, const Value& value, const Arguments& arguments) {
  Parameters("test", arguments, {});
  return value.Is(Kind::kString) && FindTest(EncodeUtf8(value.text())) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFn function;
};

constexpr NamedTest kTests[] = {
    {"!=", Compares<CompareOp::kNe>},
    {"<", Compares<CompareOp::kLt>},
    {"<=", Compares<CompareOp::kLe>},
    {"==", Compares<CompareOp::kEq>},
    {">", Compares<CompareOp::kGt>},
    {">=", Compares<CompareOp::kGe>},
    {"boolean", Plainly<IsBoolean>},
    {"callable", Plainly<IsCallable>},
    {"defined", Plainly<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", Compares<CompareOp::kEq>},
    {"equalto", Compares<CompareOp::kEq>},
    {"escaped", Plainly<IsEscaped>},
    {"even", HasRemainder<0>},
    {"false", Plainly<IsFalseItself>},
    {"filter", NamesFilter},
    {"float", Plainly<IsFloat>},
    {"ge", Compares<CompareOp::kGe>},
    {"greaterthan", Compares<CompareOp::kGt>},
    {"gt", Compares<CompareOp::kGt>},
    {"in", IsIn},
    {"integer", Plainly<IsIntegerNumber>},
    {"iterable", IsIterableTest},
    {"le", Compares<CompareOp::kLe>},
    {"lessthan", Compares<CompareOp::kLt>},
    {"lower", HasCase<false>},
    {"lt", Compares<CompareOp::kLt>},
    {"mapping", Plainly<IsMapping>},
    {"ne", Compares<CompareOp::kNe>},
    {"none", Plainly<IsNone>},
    {"number", Plainly<IsAnyNumber>},
    {"odd", HasRemainder<1>},
    {"sameas", IsSame},
    {"sequence", IsSequenceTest},
    {"string", Plainly<IsString>},
    {"test", NamesTest},
    {"true", Plainly<IsTrueItself>},
    {"undefined", Plainly<IsUndefined>},
    {"upper", HasCase<true>},
};

}  // namespace

TestFn FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const NamedTest& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

TestFn TestByValue(Runtime& runtime, const Value& name) {
  const TestFn test = name.Is(Kind::kString) ? FindTest(EncodeUtf8(name.text())) : nullptr;
  if (test == nullptr) {
    throw Failure("there is no test " + Printable(EncodeUtf8(Repr(runtime, name))));
  }
  return test;
}

}  // namespace hearth::jinja
