// Filters that give an iterator: they look at an item, and fail on it, only when somebody asks for
// it.
#include <algorithm>
#include <utility>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/signature.h"
#include "text/jinja/values/strings.h"

namespace hearth::jinja {
namespace {

Arguments WithoutFirst(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(count));
  return rest;
}

// Gives what `step` makes of each item of `source`; nothing leaves an item out.
template <typename Step>
class Lazy : public IteratorObject {
 public:
  Lazy(const Value& source, Step step, bool needs_items)
      : source_(source), step_(std::move(step)), needs_items_(needs_items) {}

  std::optional<Value> Next(Runtime& runtime) override {
    if (items_ == nullptr) {
      if (!needs_items_ && !IsTrue(runtime, source_)) return std::nullopt;
      items_ = &Iterate(runtime, source_);
    }
    while (const auto item = items_->Next(runtime)) {
      if (const auto result = step_(runtime, *item)) return result;
    }
    return std::nullopt;
  }

 private:
  const Value source_;
  Step step_;
  const bool needs_items_;  // else, as in Jinja, none or 0 is as good as an empty list
  IteratorObject* items_ = nullptr;
};

// Of an iterator over `source` whose steps may read iterators among `arguments` too.
int NestingOfAll(const Value& source, const Arguments& arguments) {
  int nesting = NestingOver(source);
  for (const Value& value : arguments.positional) nesting = std::max(nesting, NestingOver(value));
  for (const auto& keyword : arguments.keywords) {
    nesting = std::max(nesting, NestingOver(keyword.second));
  }
  return nesting;
}

template <typename Step>
Value MakeLazy(Runtime& runtime, const Value& source, const Arguments& arguments, Step step,
               bool needs_items = false) {
  const int nesting = NestingOfAll(source, arguments);
  auto* lazy = runtime.heap().New<Lazy<Step>>(source, std::move(step), needs_items);
  lazy->nesting = nesting;
  return Value(lazy);
}

Value MapByAttribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Value attribute;
  Value otherwise;
  std::string unknown;
  for (const auto& [name, argument] : arguments.keywords) {
    if (name == Own("attribute")) {
      attribute = argument;
    } else if (name == Own("default")) {
      otherwise = argument.Is(Kind::kNone) ? Value() : argument;
    } else {
      unknown = EncodeUtf8(name);
    }
  }
  return MakeLazy(
      runtime, value, arguments,
      [attribute, otherwise, unknown](Runtime& its_runtime,
                                      const Value& item) -> std::optional<Value> {
        if (!unknown.empty()) throw Failure("map takes no argument '" + unknown + "'");
        return AttributePath(its_runtime, attribute, false, otherwise).Get(its_runtime, item);
      });
}

Value MapLazily(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const bool by_attribute =
      arguments.positional.empty() &&
      std::any_of(arguments.keywords.begin(), arguments.keywords.end(),
                  [](const auto& keyword) { return keyword.first == Own("attribute"); });
  if (by_attribute) return MapByAttribute(runtime, value, arguments);
  return MakeLazy(runtime, value, arguments,
                  [arguments](Runtime& its_runtime, const Value& item) -> std::optional<Value> {
                    if (arguments.positional.empty())
                      throw Failure("map needs the name of a filter");
                    const DepthScope depth(its_runtime);
                    const FilterFn filter = FilterByValue(its_runtime, arguments.positional[0]);
                    return filter(its_runtime, item, WithoutFirst(arguments, 1));
                  });
}

template <bool kByAttribute, bool kWanted>
Value SelectLazily(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return MakeLazy(
      runtime, value, arguments,
      [arguments](Runtime& its_runtime, const Value& item) -> std::optional<Value> {
        constexpr size_t kTestAt = kByAttribute ? 1 : 0;
        const DepthScope depth(its_runtime);
        Value looked_at = item;
        if (kByAttribute) {
          if (arguments.positional.empty())
            throw Failure("selectattr needs the name of an attribute");
          looked_at =
              AttributePath(its_runtime, arguments.positional[0], false).Get(its_runtime, item);
        }
        bool passes = false;
        if (arguments.positional.size() > kTestAt) {
          const TestFn test = TestByValue(its_runtime, arguments.positional[kTestAt]);
          passes = test(its_runtime, looked_at, WithoutFirst(arguments, kTestAt + 1));
        } else {
          passes = IsTrue(its_runtime, looked_at);
        }
        return passes == kWanted ? std::optional(item) : std::nullopt;
      });
}

Value ItemsLazily(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("items", arguments, {});
  if (value.Is(Kind::kDict)) {
    return Value(&Iterate(runtime, Value(runtime.heap().New<DictViewObject>(
                                       &value.dict(), DictViewObject::Part::kItems))));
  }
  return MakeLazy(runtime, value.Is(Kind::kUndefined) ? value : runtime.Tuple({value}), arguments,
                  [](Runtime& /*runtime*/, const Value& item) -> std::optional<Value> {
                    throw Failure("items needs a dict, not a " + TypeName(item));
                  });
}

Value UniqueLazily(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(runtime, parameters.Or(1, Value::None()),
                           !parameters.True(runtime, 0, false));
  auto* seen = runtime.heap().New<DictObject>();
  return MakeLazy(
      runtime, value, arguments,
      [path, seen](Runtime& its_runtime, const Value& item) -> std::optional<Value> {
        const Value key = path.Get(its_runtime, item);
        if (seen->Find(its_runtime, key) != nullptr) return std::nullopt;
        seen->Set(its_runtime, key, Value::None());
        return item;
      },
      true);
}

struct ReverseIterator : IteratorObject {
  explicit ReverseIterator(Values its_items) : items(std::move(its_items)) {}
  std::optional<Value> Next(Runtime& runtime) override {
    runtime.Spend(1);
    if (items.empty()) return std::nullopt;
    const Value last = items.back();
    items.pop_back();
    return last;
  }
  Values items;
};

Value ReverseFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("reverse", arguments, {});
  if (value.Is(Kind::kString)) {
    runtime.Spend(value.text().size() / 16);
    return TextLike(runtime, value, Text(value.text().rbegin(), value.text().rend()));
  }
  Values items = Items(runtime, value);
  if (value.Is(Kind::kIterator)) {  // there is no last item to begin with: read it all
    std::reverse(items.begin(), items.end());
    return runtime.List(std::move(items));
  }
  return Value(runtime.heap().New<ReverseIterator>(std::move(items)));
}

// The items of a list that is made when the first of them is asked for.
class Deferred : public IteratorObject {
 public:
  using MakeFn = Values (*)(Runtime& runtime, const Value& value, const Parameters& parameters);
  Deferred(MakeFn make, const Value& value, const Parameters& parameters)
      : make_(make), value_(value), parameters_(parameters) {}

  std::optional<Value> Next(Runtime& runtime) override {
    if (items_ == nullptr) {
      items_ = &Iterate(runtime, runtime.List(make_(runtime, value_, parameters_)));
    }
    return items_->Next(runtime);
  }

 private:
  const MakeFn make_;
  const Value value_;
  const Parameters parameters_;
  IteratorObject* items_ = nullptr;
};

Value MakeDeferred(Runtime& runtime, Deferred::MakeFn make, const Value& value,
                   const Parameters& parameters) {
  const int nesting = NestingOver(value);
  auto* deferred = runtime.heap().New<Deferred>(make, value, parameters);
  deferred->nesting = nesting;
  return Value(deferred);
}

// Lists of `size` items each, the last filled up.
Values Batches(Runtime& runtime, const Value& value, const Parameters& parameters) {
  // As in Jinja, a size that no batch can have makes one batch.
  const Value& size = parameters[0];
  const auto count = [](const Values& items) {
    return Value::Integer(static_cast<Int>(items.size()));
  };
  Values batches;
  Values batch;
  for (const Value& item : Items(runtime, value)) {
    if (Equal(runtime, count(batch), size)) {
      batches.push_back(runtime.List(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (parameters.IsSet(1) && Less(runtime, count(batch), size)) {
      runtime.CheckSize(parameters.Integer(0, 1) * 8);
      batch.resize(static_cast<size_t>(parameters.Integer(0, 1)), parameters[1]);
    }
    batches.push_back(runtime.List(std::move(batch)));
  }
  return batches;
}

Value BatchFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"}, 1);
  return MakeDeferred(runtime, Batches, value, parameters);
}

// So many lists, as even as can be.
Values Slices(Runtime& runtime, const Value& value, const Parameters& parameters) {
  const Int count = parameters.Integer(0, 1);
  const Values items = Items(runtime, value);
  if (count == 0) throw Failure("a division by zero");
  runtime.CheckSize(count * 16);
  const auto length = static_cast<Int>(items.size());
  Values slices;
  Int begin = 0;
  for (Int i = 0; i < count; ++i) {
    const bool has_extra = i < length % count;
    const Int end = begin + length / count + (has_extra ? 1 : 0);
    Values slice(items.begin() + static_cast<ptrdiff_t>(begin),
                 items.begin() + static_cast<ptrdiff_t>(end));
    if (parameters.IsSet(1) && !has_extra) slice.push_back(parameters[1]);
    slices.push_back(runtime.List(std::move(slice)));
    begin = end;
  }
  return slices;
}

Value SliceFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("slice", arguments, {"slices", "fill_with"}, 1);
  return MakeDeferred(runtime, Slices, value, parameters);
}

constexpr NamedFilter kLazyFilters[] = {
    {"batch", BatchFilter},
    {"items", ItemsLazily},
    {"map", MapLazily},
    {"reject", SelectLazily<false, false>},
    {"rejectattr", SelectLazily<true, false>},
    {"reverse", ReverseFilter},
    {"select", SelectLazily<false, true>},
    {"selectattr", SelectLazily<true, true>},
    {"slice", SliceFilter},
    {"unique", UniqueLazily},
};

}  // namespace

FilterFn FindLazyFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kLazyFilters), std::end(kLazyFilters),
                                   [&](const NamedFilter& filter) { return filter.name == name; });
  return found == std::end(kLazyFilters) ? nullptr : found->function;
}

}  // namespace hearth::jinja
