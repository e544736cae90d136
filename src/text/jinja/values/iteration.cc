// iter() over every kind of value.
#include <fmt/format.h>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"

namespace hearth::jinja {
namespace {

struct EmptyIterator : IteratorObject {
  std::optional<Value> Next(Runtime& /*runtime*/) override { return std::nullopt; }
};

struct ListIterator : IteratorObject {
  explicit ListIterator(const Values& its_items) : items(its_items) {}
  std::optional<Value> Next(Runtime& runtime) override {
    runtime.Spend(1);
    if (at == items.size()) return std::nullopt;
    return items[at++];
  }
  const Values& items;
  size_t at = 0;
};

struct TextIterator : IteratorObject {
  explicit TextIterator(const Text& its_text) : text(its_text) {}
  std::optional<Value> Next(Runtime& runtime) override {
    runtime.Spend(1);
    if (at == text.size()) return std::nullopt;
    return runtime.Character(text[at++]);
  }
  const Text& text;
  size_t at = 0;
};

struct DictIterator : IteratorObject {
  DictIterator(const DictObject& its_dict, DictViewObject::Part its_part)
      : dict(its_dict), part(its_part) {}
  std::optional<Value> Next(Runtime& runtime) override {
    runtime.Spend(1);
    if (at == dict.items.size()) return std::nullopt;
    const auto& [key, value] = dict.items[at++];
    if (part == DictViewObject::Part::kKeys) return key;
    return part == DictViewObject::Part::kValues ? value : runtime.Tuple({key, value});
  }
  const DictObject& dict;
  const DictViewObject::Part part;
  size_t at = 0;
};

struct RangeIterator : IteratorObject {
  explicit RangeIterator(const RangeObject& its_range) : range(its_range) {}
  std::optional<Value> Next(Runtime& runtime) override {
    runtime.Spend(1);
    if (at == range.length) return std::nullopt;
    return Value::Integer(range.At(at++));
  }
  const RangeObject& range;
  Int at = 0;
};

}  // namespace

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return false;
    case Kind::kObject:
      return value.object().Iterator() != nullptr;
    default:
      return true;
  }
}

IteratorObject& Iterate(Runtime& runtime, const Value& value) {
  Heap& heap = runtime.heap();
  switch (value.kind()) {
    case Kind::kUndefined:
      return *heap.New<EmptyIterator>();
    case Kind::kString:
      return *heap.New<TextIterator>(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return *heap.New<ListIterator>(value.items());
    case Kind::kDict:
      return *heap.New<DictIterator>(value.dict(), DictViewObject::Part::kKeys);
    case Kind::kDictView:
      return *heap.New<DictIterator>(*value.As<DictViewObject>().dict,
                                     value.As<DictViewObject>().part);
    case Kind::kRange:
      return *heap.New<RangeIterator>(value.As<RangeObject>());
    case Kind::kIterator:
      return value.iterator();
    case Kind::kObject:
      if (IteratorObject* iterator = value.object().Iterator()) return *iterator;
      break;
    default:
      break;
  }
  throw Failure(fmt::format("a {} has no items", TypeName(value)));
}

int NestingOver(const Value& source) {
  // Jinja's own bound is Python's: a bit less than 1000 calls. With the address sanitizer a level
  // takes up to 4 KiB of the stack, which may have 512.
  constexpr int kMaxNesting = 100;
  const IteratorObject* inner = source.Is(Kind::kIterator) ? &source.iterator()
                                : source.Is(Kind::kObject) ? source.object().Iterator()
                                                           : nullptr;
  const int nesting = inner != nullptr ? inner->nesting + 1 : 0;
  if (nesting > kMaxNesting) {
    throw LimitExceeded("the template nests too many iterators, one inside the other");
  }
  return nesting;
}

Values Items(Runtime& runtime, const Value& value) {
  if (IsSequence(value.kind())) {
    runtime.Spend(value.items().size());
    return value.items();
  }
  Values items;
  IteratorObject& iterator = Iterate(runtime, value);
  while (const auto item = iterator.Next(runtime)) items.push_back(*item);
  return items;
}

}  // namespace hearth::jinja
