// The values that a template computes with: Python's, as far as templates meet them.
//
// A Value is small and copied freely; what it points to belongs to a Heap and never changes once it
// is built, but for namespaces and iterators. Nothing is freed before the heap is: values may form
// cycles and chains of any length without harm.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/values/numbers.h"
#include "text/jinja/values/text.h"

namespace hearth::jinja {

class Runtime;

// Whatever a heap owns.
struct HeapObject {
  virtual ~HeapObject() = default;
};

struct StringObject;
struct ListObject;
struct DictObject;
struct DictViewObject;
struct RangeObject;
struct UndefinedObject;
struct IteratorObject;
struct CustomObject;

enum class Kind : uint8_t {
  kMissing,  // a variable that was never set; never a value of an expression
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // read once: what filters like map and select give
  kObject,    // namespaces, macros, functions, the loop
};

// For Python a bool is an int.
constexpr bool IsInteger(Kind kind) { return kind == Kind::kInt || kind == Kind::kBool; }
constexpr bool IsNumber(Kind kind) { return IsInteger(kind) || kind == Kind::kFloat; }
constexpr bool IsSequence(Kind kind) { return kind == Kind::kList || kind == Kind::kTuple; }

class Value;
using Values = std::vector<Value, MeteredAllocator<Value>>;

class Value {
  union Data {
    bool boolean;
    Int integer;
    double real;
    const void* object;
  };

 public:
  Value() = default;  // missing
  static Value None() { return Value(Kind::kNone, {}); }
  static Value Bool(bool value) { return Value(Kind::kBool, {.boolean = value}); }
  static Value Integer(Int value) { return Value(Kind::kInt, {.integer = value}); }
  static Value Float(double value) { return Value(Kind::kFloat, {.real = value}); }
  explicit Value(const StringObject* object) : Value(Kind::kString, {.object = object}) {}
  explicit Value(const DictObject* object) : Value(Kind::kDict, {.object = object}) {}
  explicit Value(const DictViewObject* object) : Value(Kind::kDictView, {.object = object}) {}
  explicit Value(const RangeObject* object) : Value(Kind::kRange, {.object = object}) {}
  explicit Value(const UndefinedObject* object) : Value(Kind::kUndefined, {.object = object}) {}
  explicit Value(IteratorObject* object) : Value(Kind::kIterator, {.object = object}) {}
  explicit Value(CustomObject* object) : Value(Kind::kObject, {.object = object}) {}
  static Value List(const ListObject* object) { return Value(Kind::kList, {.object = object}); }
  static Value Tuple(const ListObject* object) { return Value(Kind::kTuple, {.object = object}); }

  Kind kind() const { return kind_; }
  bool Is(Kind wanted) const { return kind_ == wanted; }

  // The caller has looked at the kind.
  bool boolean() const { return data_.boolean; }
  Int integer() const { return Is(Kind::kBool) ? (data_.boolean ? 1 : 0) : data_.integer; }
  double real() const { return Is(Kind::kFloat) ? data_.real : static_cast<double>(integer()); }
  template <typename T>
  const T& As() const {  // what it points to
    return *static_cast<const T*>(data_.object);
  }
  const Text& text() const;     // of a string
  const Values& items() const;  // of a list or a tuple
  const DictObject& dict() const { return As<DictObject>(); }
  IteratorObject& iterator() const;
  CustomObject& object() const;
  const void* identity() const { return data_.object; }

 private:
  Value(Kind kind, Data data) : kind_(kind), data_(data) {}

  Kind kind_ = Kind::kMissing;
  Data data_ = {};
};

struct StringObject : HeapObject {
  explicit StringObject(Text its_text, bool its_markup = false)
      : text(std::move(its_text)), is_markup(its_markup) {}
  const Text text;
  const bool is_markup;
};

struct ListObject : HeapObject {  // or a tuple
  explicit ListObject(Values its_items) : items(std::move(its_items)) {}
  const Values items;
  bool is_group = false;  // a tuple of groupby: (grouper, list)
};

// Keeps the order in which keys came. Texts are found by binary search, other keys one by one.
struct DictObject : HeapObject {
  std::vector<std::pair<Value, Value>, MeteredAllocator<std::pair<Value, Value>>> items;

  const Value* FindText(const Text& key) const;
  // An equal key keeps its place and gets the new value.
  void Set(Runtime& runtime, const Value& key, const Value& value);
  void SetText(const Value& key, const Value& value);
  const Value* Find(Runtime& runtime, const Value& key) const;

 private:
  struct TextLess {
    bool operator()(const Text* a, const Text* b) const { return *a < *b; }
  };
  std::map<const Text*, size_t, TextLess, MeteredAllocator<std::pair<const Text* const, size_t>>>
      texts_;
  std::vector<size_t, MeteredAllocator<size_t>> others_;
};

struct DictViewObject : HeapObject {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  DictViewObject(const DictObject* its_dict, Part its_part) : dict(its_dict), part(its_part) {}
  const DictObject* const dict;
  const Part part;
};

struct RangeObject : HeapObject {
  RangeObject(Int its_start, Int its_stop, Int its_step);
  const Int start, stop, step;
  Int length = 0;
  Int At(Int index) const { return start + index * step; }
};

struct UndefinedObject : HeapObject {
  explicit UndefinedObject(const std::string& its_message) : message(its_message) {}
  const std::string& message;  // what an operation on it fails with; the runtime keeps it
};

struct IteratorObject : HeapObject {
  // Nothing at the end, and from then on.
  virtual std::optional<Value> Next(Runtime& runtime) = 0;
  int nesting = 0;  // iterators that this one reads through, one inside the other
};

// Arguments of a call, evaluated.
struct Arguments {
  Values positional;
  std::vector<std::pair<Text, Value>> keywords;
};

// What has attributes, or can be called, in its own way.
struct CustomObject : HeapObject {
  virtual std::string TypeName() const = 0;
  virtual bool IsCallable() const { return false; }
  virtual Value Call(Runtime& runtime, const Arguments& arguments);
  // Nothing where it has no such attribute.
  virtual std::optional<Value> Attribute(Runtime& runtime, const Text& name);
  virtual bool IsTrue(Runtime& /*runtime*/) { return true; }
  virtual std::optional<Int> Length(Runtime& /*runtime*/) { return std::nullopt; }
  // Null where it has no items.
  virtual IteratorObject* Iterator() { return nullptr; }
  virtual Text Repr(Runtime& runtime);
};

// Owns what it makes until it goes. What objects take is counted by the thread's meter.
class Heap {
 public:
  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <typename T, typename... Args>
  T* New(Args&&... args) {
    Charge(sizeof(T) + kOverheadBytes);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* const pointer = object.get();
    objects_.push_back(std::move(object));
    return pointer;
  }
  // Counts what objects hold beside themselves and no allocator counts, before it is taken. Throws
  // as MemoryMeter::Take does.
  void Charge(size_t bytes);

  Value String(Text text, bool is_markup = false);
  Value List(Values items);
  Value Tuple(Values items);

 private:
  static constexpr size_t kOverheadBytes = 16;
  using Owned = std::unique_ptr<HeapObject>;

  size_t charged_bytes_ = 0;
  std::vector<Owned, MeteredAllocator<Owned>> objects_;
};

inline const Text& Value::text() const { return As<StringObject>().text; }
inline const Values& Value::items() const { return As<ListObject>().items; }
inline IteratorObject& Value::iterator() const {
  return *static_cast<IteratorObject*>(const_cast<void*>(data_.object));
}
inline CustomObject& Value::object() const {
  return *static_cast<CustomObject*>(const_cast<void*>(data_.object));
}

// Whether it is a text that is escaped already (markup.h).
inline bool IsMarkup(const Value& value) {
  return value.Is(Kind::kString) && value.As<StringObject>().is_markup;
}

// "str", "int", "list": the name of the type, for messages.
std::string TypeName(const Value& value);

}  // namespace hearth::jinja
