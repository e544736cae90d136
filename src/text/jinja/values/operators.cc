#include "text/jinja/values/operators.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/search.h"

namespace hearth::jinja {
namespace {

bool EqualItems(Runtime& runtime, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(runtime, a[i], b[i])) return false;
  }
  return true;
}

bool EqualDicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.Find(runtime, key);
    if (other == nullptr || !Equal(runtime, value, *other)) return false;
  }
  return true;
}

bool EqualViews(Runtime& runtime, const DictViewObject& a, const DictViewObject& b) {
  if (a.part != b.part || a.part == DictViewObject::Part::kValues) return &a == &b;
  if (a.part == DictViewObject::Part::kItems) return EqualDicts(runtime, *a.dict, *b.dict);
  if (a.dict->items.size() != b.dict->items.size()) return false;
  for (const auto& item : a.dict->items) {
    if (b.dict->Find(runtime, item.first) == nullptr) return false;
  }
  return true;
}

std::partial_ordering OrderOfNumbers(const Value& a, const Value& b) {
  if (IsInteger(a.kind()) && IsInteger(b.kind())) return a.integer() <=> b.integer();
  if (IsInteger(a.kind())) return CompareNumbers(a.integer(), b.real());
  if (IsInteger(b.kind())) return 0 <=> CompareNumbers(b.integer(), a.real());
  return a.real() <=> b.real();
}

[[noreturn]] void FailCompare(const Value& a, const Value& b) {
  throw Failure(fmt::format("a {} and a {} have no order", TypeName(a), TypeName(b)));
}

bool LessItems(Runtime& runtime, const Values& a, const Values& b) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    if (!Equal(runtime, a[i], b[i])) return Less(runtime, a[i], b[i]);
  }
  return a.size() < b.size();
}

bool LessOrEqual(Runtime& runtime, const Value& a, const Value& b) {
  if (IsNumber(a.kind()) && IsNumber(b.kind())) return OrderOfNumbers(a, b) <= 0;  // false for nan
  return !Less(runtime, b, a);
}

bool ContainsItem(Runtime& runtime, const Values& items, const Value& item) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& candidate) { return Equal(runtime, candidate, item); });
}

bool ContainsInView(Runtime& runtime, const DictViewObject& view, const Value& item) {
  if (view.part == DictViewObject::Part::kKeys) return view.dict->Find(runtime, item) != nullptr;
  for (const auto& [key, value] : view.dict->items) {
    if (view.part == DictViewObject::Part::kValues) {
      if (Equal(runtime, value, item)) return true;
    } else if (item.Is(Kind::kTuple) && item.items().size() == 2 &&
               Equal(runtime, key, item.items()[0]) && Equal(runtime, value, item.items()[1])) {
      return true;
    }
  }
  return false;
}

bool ContainsText(Runtime& runtime, const Text& text, const Value& item) {
  if (!item.Is(Kind::kString)) {
    throw Failure(fmt::format("'in' a str needs a str, not a {}", TypeName(item)));
  }
  return FindText(runtime, text, item.text()) != Text::npos;
}

}  // namespace

void FailUndefined(const Value& value) { throw Failure(value.As<UndefinedObject>().message); }

bool IsTrue(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kDictView:
      return !value.As<DictViewObject>().dict->items.empty();
    case Kind::kRange:
      return value.As<RangeObject>().length != 0;
    case Kind::kIterator:
      return true;
    case Kind::kObject:
      return value.object().IsTrue(runtime);
  }
  return false;
}

bool Equal(Runtime& runtime, const Value& a, const Value& b) {
  const DepthScope depth(runtime);
  runtime.Spend(1);
  if (IsNumber(a.kind()) && IsNumber(b.kind())) return OrderOfNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      runtime.Spend(std::min(a.text().size(), b.text().size()) / 16);
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.identity() == b.identity() || EqualItems(runtime, a.items(), b.items());
    case Kind::kDict:
      return a.identity() == b.identity() || EqualDicts(runtime, a.dict(), b.dict());
    case Kind::kDictView:
      return EqualViews(runtime, a.As<DictViewObject>(), b.As<DictViewObject>());
    case Kind::kRange: {
      const RangeObject& left = a.As<RangeObject>();
      const RangeObject& right = b.As<RangeObject>();
      if (left.length != right.length) return false;
      if (left.length == 0) return true;
      return left.start == right.start && (left.length == 1 || left.step == right.step);
    }
    default:
      return a.identity() == b.identity();
  }
}

bool Less(Runtime& runtime, const Value& a, const Value& b) {
  const DepthScope depth(runtime);
  runtime.Spend(1);
  if (a.Is(Kind::kUndefined)) FailUndefined(a);
  if (b.Is(Kind::kUndefined)) FailUndefined(b);
  if (IsNumber(a.kind()) && IsNumber(b.kind())) return OrderOfNumbers(a, b) < 0;
  if (a.kind() != b.kind()) FailCompare(a, b);
  if (a.Is(Kind::kString)) {
    runtime.Spend(std::min(a.text().size(), b.text().size()) / 16);
    return a.text() < b.text();
  }
  if (IsSequence(a.kind())) return LessItems(runtime, a.items(), b.items());
  FailCompare(a, b);
}

bool Compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return Equal(runtime, a, b);
    case CompareOp::kNe:
      return !Equal(runtime, a, b);
    case CompareOp::kLt:
      return Less(runtime, a, b);
    case CompareOp::kGt:
      return Less(runtime, b, a);
    case CompareOp::kLe:
      return LessOrEqual(runtime, a, b);
    case CompareOp::kGe:
      return LessOrEqual(runtime, b, a);
    case CompareOp::kIn:
      return Contains(runtime, b, a);
    case CompareOp::kNotIn:
      return !Contains(runtime, b, a);
  }
  return false;
}

bool Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      return ContainsText(runtime, container.text(), item);
    case Kind::kList:
    case Kind::kTuple:
      return ContainsItem(runtime, container.items(), item);
    case Kind::kDict:
      return container.dict().Find(runtime, item) != nullptr;
    case Kind::kDictView:
      return ContainsInView(runtime, container.As<DictViewObject>(), item);
    default:
      break;
  }
  IteratorObject& items = Iterate(runtime, container);
  while (const auto candidate = items.Next(runtime)) {
    if (Equal(runtime, *candidate, item)) return true;
  }
  return false;
}

void CheckHashable(Runtime& runtime, const Value& value) {
  const DepthScope depth(runtime);
  runtime.Spend(1);
  switch (value.kind()) {
    case Kind::kTuple:
      for (const Value& item : value.items()) CheckHashable(runtime, item);
      return;
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      throw Failure(fmt::format("a {} cannot be a key", TypeName(value)));
    case Kind::kString:
      return runtime.Spend(value.text().size() / 16);
    default:
      return;
  }
}

Int Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<Int>(value.text().size());
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<Int>(value.items().size());
    case Kind::kDict:
      return static_cast<Int>(value.dict().items.size());
    case Kind::kDictView:
      return static_cast<Int>(value.As<DictViewObject>().dict->items.size());
    case Kind::kRange:
      return value.As<RangeObject>().length;
    case Kind::kObject:
      if (const auto length = value.object().Length(runtime)) return *length;
      break;
    default:
      break;
  }
  throw Failure(fmt::format("a {} has no length", TypeName(value)));
}

bool HasLength(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kIterator:
      return false;
    case Kind::kObject:
      return value.object().Length(runtime).has_value();
    default:
      return true;
  }
}

Value Call(Runtime& runtime, const Value& callee, const Arguments& arguments) {
  if (callee.Is(Kind::kUndefined)) FailUndefined(callee);
  if (!callee.Is(Kind::kObject)) {
    throw Failure(fmt::format("a {} cannot be called", TypeName(callee)));
  }
  return callee.object().Call(runtime, arguments);
}

// Merges runs from the bottom up; std::stable_sort may do anything where a comparison is no order
// (nan).
void SortByKey(Runtime& runtime, KeyedValues& values, bool reverse) {
  if (reverse) std::reverse(values.begin(), values.end());
  const auto less = [&](const Value& a, const Value& b) { return Less(runtime, a, b); };
  KeyedValues merged;
  for (size_t width = 1; width < values.size(); width *= 2) {
    merged.clear();
    for (size_t begin = 0; begin < values.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, values.size());
      const size_t end = std::min(begin + 2 * width, values.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle || right < end) {
        const bool take_right =
            left == middle || (right < end && less(values[right].key, values[left].key));
        merged.push_back(values[take_right ? right++ : left++]);
      }
    }
    values.swap(merged);
  }
  if (reverse) std::reverse(values.begin(), values.end());
}

}  // namespace hearth::jinja
