#include "text/jinja/values/value.h"

#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/runtime.h"

namespace hearth::jinja {

const Value* DictObject::FindText(const Text& key) const {
  const auto found = texts_.find(&key);
  return found == texts_.end() ? nullptr : &items[found->second].second;
}

void DictObject::SetText(const Value& key, const Value& value) {
  const auto [place, is_new] = texts_.emplace(&key.text(), items.size());
  if (is_new) {
    items.emplace_back(key, value);
  } else {
    items[place->second].second = value;
  }
}

void DictObject::Set(Runtime& runtime, const Value& key, const Value& value) {
  CheckHashable(runtime, key);
  if (key.Is(Kind::kString)) return SetText(key, value);
  for (const size_t index : others_) {
    if (!Equal(runtime, items[index].first, key)) continue;
    items[index].second = value;
    return;
  }
  others_.push_back(items.size());
  items.emplace_back(key, value);
}

const Value* DictObject::Find(Runtime& runtime, const Value& key) const {
  CheckHashable(runtime, key);
  if (key.Is(Kind::kString)) return FindText(key.text());
  for (const size_t index : others_) {
    if (Equal(runtime, items[index].first, key)) return &items[index].second;
  }
  return nullptr;
}

RangeObject::RangeObject(Int its_start, Int its_stop, Int its_step)
    : start(its_start), stop(its_stop), step(its_step) {
  if (step > 0 && stop > start) length = (stop - start + step - 1) / step;
  if (step < 0 && stop < start) length = (start - stop - step - 1) / -step;
}

Value CustomObject::Call(Runtime& /*runtime*/, const Arguments& /*arguments*/) {
  throw Failure("a " + TypeName() + " cannot be called");
}

std::optional<Value> CustomObject::Attribute(Runtime& /*runtime*/, const Text& /*name*/) {
  return std::nullopt;
}

Text CustomObject::Repr(Runtime& /*runtime*/) { return Own("<" + TypeName() + ">"); }

Heap::~Heap() {
  if (MemoryMeter* const meter = MemoryMeter::current()) meter->Give(charged_bytes_);
}

void Heap::Charge(size_t bytes) {
  TakeMemory(bytes);
  charged_bytes_ += bytes;
}

Value Heap::String(Text text, bool is_markup) {
  return Value(New<StringObject>(std::move(text), is_markup));
}

Value Heap::List(Values items) { return Value::List(New<ListObject>(std::move(items))); }

Value Heap::Tuple(Values items) { return Value::Tuple(New<ListObject>(std::move(items))); }

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      switch (value.As<DictViewObject>().part) {
        case DictViewObject::Part::kKeys:
          return "dict_keys";
        case DictViewObject::Part::kValues:
          return "dict_values";
        case DictViewObject::Part::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return value.object().TypeName();
  }
  return "object";
}

}  // namespace hearth::jinja
