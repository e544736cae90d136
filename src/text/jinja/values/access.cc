// Attributes, items and slices.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {
namespace {

// Methods that would change a value: the sandbox hides them.
bool IsForbidden(const Value& object, const std::string& name) {
  constexpr std::array<const char*, 8> kOfLists = {"append", "clear", "pop",    "reverse",
                                                   "insert", "sort",  "extend", "remove"};
  constexpr std::array<const char*, 5> kOfDicts = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};
  const auto is_name = [&](const char* other) { return name == other; };
  if (object.Is(Kind::kList)) return std::any_of(kOfLists.begin(), kOfLists.end(), is_name);
  if (object.Is(Kind::kDict)) return std::any_of(kOfDicts.begin(), kOfDicts.end(), is_name);
  return false;
}

Value MissingAttribute(Runtime& runtime, const Value& object, const Text& name) {
  return runtime.Undefined(
      fmt::format("a {} has no attribute '{}'", TypeName(object), EncodeUtf8(name)));
}

// object[key]; nothing where Python would raise a TypeError or a LookupError.
std::optional<Value> FindIndexed(Runtime& runtime, const Value& object, const Value& key) {
  if (object.Is(Kind::kDict)) {
    if (IsSequence(key.kind()) || key.Is(Kind::kDict) || key.Is(Kind::kDictView)) {
      if (!key.Is(Kind::kTuple)) return std::nullopt;
    }
    const Value* found = object.dict().Find(runtime, key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!IsInteger(key.kind())) return std::nullopt;
  const bool indexed =
      object.Is(Kind::kString) || IsSequence(object.kind()) || object.Is(Kind::kRange);
  if (!indexed) return std::nullopt;
  const Int length = Length(runtime, object);
  const Int index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (object.Is(Kind::kRange)) return Value::Integer(object.As<RangeObject>().At(index));
  if (object.Is(Kind::kString)) {
    const char32_t character = object.text()[static_cast<size_t>(index)];
    return IsMarkup(object) ? runtime.Markup(Text(1, character)) : runtime.Character(character);
  }
  return object.items()[static_cast<size_t>(index)];
}

// What stands under an attribute's name although it cannot be had.
std::optional<Value> FindSafeAttribute(Runtime& runtime, const Value& object, const Text& name) {
  const std::string utf8 = EncodeUtf8(name);
  if (IsForbidden(object, utf8)) {
    return runtime.Undefined(fmt::format("'{}' of a {} is not allowed: values cannot be changed",
                                         utf8, TypeName(object)));
  }
  return FindAttribute(runtime, object, name);
}

constexpr Int kFarthest = Int{1} << 62;  // no step reaches further

// A bound of a slice, moved into [low, high].
Int Bound(const Value& value, Int length, Int low, Int high, Int otherwise) {
  if (value.Is(Kind::kNone)) return otherwise;
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (!IsInteger(value.kind())) throw Failure("the bounds of a slice must be integers");
  Int bound = std::clamp(value.integer(), -kFarthest, kFarthest);
  if (bound < 0) bound += length;
  return std::clamp(bound, low, high);
}

struct SliceBounds {
  Int start, step, count;
};

SliceBounds ResolveSlice(const Value& start, const Value& stop, const Value& step, Int length) {
  Int by = 1;
  if (!step.Is(Kind::kNone)) {
    if (step.Is(Kind::kUndefined)) FailUndefined(step);
    if (!IsInteger(step.kind())) throw Failure("the step of a slice must be an integer");
    by = std::clamp(step.integer(), -kFarthest, kFarthest);
    if (by == 0) throw Failure("the step of a slice must not be zero");
  }
  const Int low = by < 0 ? -1 : 0;
  const Int high = by < 0 ? length - 1 : length;
  const Int first = Bound(start, length, low, high, by < 0 ? high : low);
  const Int end = Bound(stop, length, low, high, by < 0 ? low : high);
  Int count = 0;
  if (by > 0 && first < end) count = (end - first - 1) / by + 1;
  if (by < 0 && first > end) count = (first - end - 1) / -by + 1;
  return {first, by, count};
}

}  // namespace

std::optional<Value> FindAttribute(Runtime& runtime, const Value& object, const Text& name) {
  if (object.Is(Kind::kUndefined)) FailUndefined(object);
  if (object.Is(Kind::kObject)) return object.object().Attribute(runtime, name);
  return FindMethod(runtime, object, name);
}

Value GetAttribute(Runtime& runtime, const Value& object, const Text& name) {
  runtime.Spend(1);
  if (auto found = FindSafeAttribute(runtime, object, name)) return *found;
  if (object.Is(Kind::kDict)) {
    if (const Value* found = object.dict().FindText(name)) return *found;
  }
  return MissingAttribute(runtime, object, name);
}

Value GetItem(Runtime& runtime, const Value& object, const Value& key) {
  runtime.Spend(1);
  if (object.Is(Kind::kUndefined)) FailUndefined(object);
  if (const auto found = FindIndexed(runtime, object, key)) return *found;
  if (key.Is(Kind::kString)) {
    if (auto found = FindSafeAttribute(runtime, object, key.text())) return *found;
    return MissingAttribute(runtime, object, key.text());
  }
  return runtime.Undefined(fmt::format("a {} has no such element", TypeName(object)));
}

Value Slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.Is(Kind::kUndefined)) FailUndefined(object);
  const bool sliceable =
      object.Is(Kind::kString) || IsSequence(object.kind()) || object.Is(Kind::kRange);
  if (!sliceable) throw Failure(fmt::format("a {} cannot be sliced", TypeName(object)));
  const Int length = Length(runtime, object);
  const SliceBounds bounds = ResolveSlice(start, stop, step, length);
  if (object.Is(Kind::kRange)) {
    const RangeObject& range = object.As<RangeObject>();
    const Int first = range.At(bounds.start);
    const Int by = bounds.step > length || bounds.step < -length ? length + 1 : bounds.step;
    const Int total = range.step * by;
    return Value(runtime.heap().New<RangeObject>(first, first + total * bounds.count, total));
  }
  runtime.CheckSize(bounds.count);
  if (object.Is(Kind::kString)) {
    Text text;
    for (Int i = 0; i < bounds.count; ++i) {
      text += object.text()[static_cast<size_t>(bounds.start + i * bounds.step)];
    }
    return TextLike(runtime, object, std::move(text));
  }
  Values items;
  for (Int i = 0; i < bounds.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.Is(Kind::kList) ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
}

}  // namespace hearth::jinja
