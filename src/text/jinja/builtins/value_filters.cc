// Filters on numbers and on any value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

Value AbsFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("abs", arguments, {});
  if (IsInteger(value.kind())) {
    return value.integer() < 0 ? Negative(runtime, value) : Value::Integer(value.integer());
  }
  if (value.Is(Kind::kFloat)) return Value::Float(std::fabs(value.real()));
  throw Failure("abs needs a number, not a " + TypeName(value));
}

Value AttrFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("attr", arguments, {"name"}, 1);
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  const auto found = FindAttribute(runtime, value, parameters.String(0));
  if (!found) {
    return runtime.Undefined("a " + TypeName(value) + " has no attribute '" +
                             EncodeUtf8(parameters.String(0)) + "'");
  }
  return GetAttribute(runtime, value, parameters.String(0));
}

Value DefaultFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool replace =
      value.Is(Kind::kUndefined) || (parameters.True(runtime, 1, false) && !IsTrue(runtime, value));
  if (!replace) return value;
  return parameters.Has(0) ? parameters[0] : runtime.String({});
}

std::optional<Int> FromFloat(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (!(std::fabs(value) < 1.7e38)) throw Failure("int cannot take a float of this size");
  return static_cast<Int>(value);
}

Value IntFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  const Value otherwise = parameters.Or(0, Value::Integer(0));
  const Int base = parameters.Integer(1, 10);
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (IsInteger(value.kind())) return Value::Integer(value.integer());
  if (value.Is(Kind::kFloat)) {
    const auto number = FromFloat(value.real());
    return number ? Value::Integer(*number) : otherwise;
  }
  if (!value.Is(Kind::kString)) return otherwise;
  runtime.Spend(value.text().size() / 4);
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const auto number = ParseInt(value.text(), static_cast<int>(base))) {
      return Value::Integer(*number);
    }
  }
  const auto real = ParseFloat(value.text());
  if (!real || !(std::fabs(*real) < 1.7e38)) return otherwise;
  return Value::Integer(static_cast<Int>(*real));
}

Value FloatFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (IsNumber(value.kind())) return Value::Float(value.real());
  if (value.Is(Kind::kString)) {
    runtime.Spend(value.text().size() / 4);
    if (const auto number = ParseFloat(value.text())) return Value::Float(*number);
  }
  return parameters.Or(0, Value::Float(0));
}

Value RoundInteger(Int value, Int precision) {
  if (precision >= 0) return Value::Integer(value);
  if (precision < -37) return Value::Integer(0);
  constexpr Int kLargest = Int{1} << 122;
  if (value > kLargest || value < -kLargest) throw Failure("round cannot take so large an integer");
  Int unit = 1;
  for (Int i = 0; i < -precision; ++i) unit *= 10;
  const Int rest = ((value % unit) + unit) % unit;
  const Int down = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
  return Value::Integer(up ? down + unit : down);
}

Value RoundFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  const Int precision = std::clamp<Int>(parameters.Integer(0, 0), -400, 400);
  const Text method = parameters.Has(1) ? parameters.String(1) : Own("common");
  const bool is_ceil = method == Own("ceil");
  if (!is_ceil && method != Own("floor") && method != Own("common")) {
    throw Failure("round knows the methods common, ceil and floor");
  }
  if (!IsNumber(value.kind())) throw Failure("round needs a number, not a " + TypeName(value));
  if (method == Own("common")) {
    if (IsInteger(value.kind())) return RoundInteger(value.integer(), precision);
    return Value::Float(RoundFloat(value.real(), static_cast<int>(precision)));
  }
  const Value unit = Binary(runtime, BinaryOp::kPow, Value::Integer(10), Value::Integer(precision));
  const double scaled = Binary(runtime, BinaryOp::kMul, value, unit).real();
  if (!std::isfinite(scaled)) throw Failure("round cannot round this number");
  // Python rounds to an integer, which knows no -0.
  return Value::Float(((is_ceil ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / unit.real());
}

Value FileSizeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("filesizeformat", arguments, {"binary"});
  const bool binary = parameters.True(runtime, 0, false);
  double bytes = 0;
  if (IsNumber(value.kind())) {
    bytes = value.real();
  } else if (const auto number =
                 value.Is(Kind::kString) ? ParseFloat(value.text()) : std::nullopt) {
    bytes = *number;
  } else {
    throw Failure("filesizeformat needs a number, not a " + TypeName(value));
  }
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return runtime.OwnString("1 Byte");
  if (bytes < base) return runtime.OwnString(fmt::format("{:.0f} Bytes", std::trunc(bytes) + 0.0));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0;; ++i) {
    unit *= base;
    if (bytes >= unit && i + 1 < kPrefixes.size()) continue;
    const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
    return runtime.OwnString(
        fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"));
  }
}

Value ToJsonFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = parameters.True(runtime, 0, false);
  options.sort_keys = parameters.True(runtime, 3, false);
  if (parameters.IsSet(1)) {
    if (parameters[1].Is(Kind::kString)) {
      options.indent = parameters[1].text();
    } else {
      const Int width = parameters.Integer(1, 0);
      runtime.CheckSize(width);
      options.indent =
          DecodeText(std::string(static_cast<size_t>(std::max<Int>(width, 0)), ' '), false);
    }
  }
  options.item_separator = DecodeText(options.indent ? "," : ", ", false);
  options.key_separator = DecodeText(": ", false);
  if (parameters.IsSet(2)) {
    const Values separators = Items(runtime, parameters[2]);
    if (separators.size() != 2 || !separators[0].Is(Kind::kString) ||
        !separators[1].Is(Kind::kString)) {
      throw Failure("tojson needs two texts as separators");
    }
    options.item_separator = separators[0].text();
    options.key_separator = separators[1].text();
  }
  return runtime.String(ToJson(runtime, value, options));
}

constexpr NamedFilter kValueFilters[] = {
    {"abs", AbsFilter},
    {"attr", AttrFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"filesizeformat", FileSizeFilter},
    {"float", FloatFilter},
    {"int", IntFilter},
    {"round", RoundFilter},
    {"tojson", ToJsonFilter},
};

}  // namespace

FilterFn FindValueFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kValueFilters), std::end(kValueFilters),
                                   [&](const NamedFilter& filter) { return filter.name == name; });
  return found == std::end(kValueFilters) ? nullptr : found->function;
}

}  // namespace hearth::jinja
