#include <algorithm>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/strings.h"

namespace hearth::jinja {

AttributePath::AttributePath(Runtime& runtime, const Value& attribute, bool ignore_case,
                             const Value& missing_default)
    : ignore_case_(ignore_case), default_(missing_default) {
  if (attribute.Is(Kind::kMissing) || attribute.Is(Kind::kNone)) return;
  if (!attribute.Is(Kind::kString)) {
    parts_.push_back(attribute);
    return;
  }
  const Text dot = Own(".");
  for (Text& part : Split(runtime, attribute.text(), &dot, -1)) {
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), IsDigit);
    const auto number = is_number ? ParseInt(part, 10) : std::nullopt;
    parts_.push_back(number ? Value::Integer(*number) : runtime.String(std::move(part)));
  }
}

Value AttributePath::Get(Runtime& runtime, const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = GetItem(runtime, value, part);
    if (value.Is(Kind::kUndefined) && !default_.Is(Kind::kMissing)) value = default_;
  }
  if (ignore_case_ && value.Is(Kind::kString)) return runtime.String(Lower(value.text()));
  return value;
}

std::vector<AttributePath> AttributePaths(Runtime& runtime, const Value& attribute,
                                          bool ignore_case) {
  std::vector<AttributePath> paths;
  if (!attribute.Is(Kind::kString)) {
    paths.emplace_back(runtime, attribute, ignore_case);
    return paths;
  }
  const Text comma = Own(",");
  for (Text& part : Split(runtime, attribute.text(), &comma, -1)) {
    paths.emplace_back(runtime, runtime.String(std::move(part)), ignore_case);
  }
  return paths;
}

}  // namespace hearth::jinja
