// Python's operators on values. All throw Failure where Python raises.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

enum class BinaryOp : uint8_t { kAnd, kOr, kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

bool IsTrue(Runtime& runtime, const Value& value);
bool Equal(Runtime& runtime, const Value& a, const Value& b);
bool Less(Runtime& runtime, const Value& a, const Value& b);  // a < b
bool Compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b);
bool Contains(Runtime& runtime, const Value& container, const Value& item);
// Throws where the value cannot be a key of a dict.
void CheckHashable(Runtime& runtime, const Value& value);

Value Binary(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);  // arithmetic only
Value Negative(Runtime& runtime, const Value& value);
Value Positive(Runtime& runtime, const Value& value);

// len(value); throws where it has none.
Int Length(Runtime& runtime, const Value& value);
bool HasLength(Runtime& runtime, const Value& value);

// iter(value); throws where it cannot be iterated.
IteratorObject& Iterate(Runtime& runtime, const Value& value);
bool IsIterable(const Value& value);
// The nesting of an iterator that reads `source`: 0 where that is no iterator itself. Each asks the
// one inside for an item on the stack; throws LimitExceeded where they would be too many.
int NestingOver(const Value& source);
// All items.
Values Items(Runtime& runtime, const Value& value);

// object.name and object[key] as Jinja reads them, in the sandbox that transformers uses: undefined
// where there is neither.
Value GetAttribute(Runtime& runtime, const Value& object, const Text& name);
Value GetItem(Runtime& runtime, const Value& object, const Value& key);
// The method or attribute only.
std::optional<Value> FindAttribute(Runtime& runtime, const Value& object, const Text& name);

// Bounds of object[start:stop:step]; none stands for what is left out.
Value Slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
            const Value& step);

// Calls a function, macro or method.
Value Call(Runtime& runtime, const Value& callee, const Arguments& arguments);

// Sorts as Python does: stable, with Less on the keys.
struct KeyedValue {
  Value key;
  Value value;
};
using KeyedValues = std::vector<KeyedValue, MeteredAllocator<KeyedValue>>;
void SortByKey(Runtime& runtime, KeyedValues& values, bool reverse);

[[noreturn]] void FailUndefined(const Value& value);

}  // namespace hearth::jinja
