// Filters that look at all items of a value at once.
#include <algorithm>
#include <utility>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

Value LengthFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("length", arguments, {});
  return Value::Integer(Length(runtime, value));
}

Value FirstFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("first", arguments, {});
  const auto first = Iterate(runtime, value).Next(runtime);
  return first ? *first : runtime.Undefined("there is no first item, the sequence is empty");
}

bool IsReversible(const Value& value) {
  return !value.Is(Kind::kIterator) && !value.Is(Kind::kObject) && IsIterable(value);
}

Value LastFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("last", arguments, {});
  if (!IsReversible(value))
    throw Failure("last cannot read a " + TypeName(value) + " from its end");
  if (value.Is(Kind::kString) || IsSequence(value.kind()) || value.Is(Kind::kRange)) {
    if (Length(runtime, value) > 0) return GetItem(runtime, value, Value::Integer(-1));
  } else {
    const Values items = Items(runtime, value);
    if (!items.empty()) return items.back();
  }
  return runtime.Undefined("there is no last item, the sequence is empty");
}

Value ListFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("list", arguments, {});
  return runtime.List(Items(runtime, value));
}

// The key of an item: a list, as Jinja makes it, where several attributes may count.
KeyedValues WithKeys(Runtime& runtime, const Values& items,
                     const std::vector<AttributePath>& paths) {
  KeyedValues keyed;
  for (const Value& item : items) {
    Values key;
    for (const AttributePath& path : paths) key.push_back(path.Get(runtime, item));
    keyed.push_back({runtime.List(std::move(key)), item});
  }
  return keyed;
}

Value ValuesOf(Runtime& runtime, const KeyedValues& keyed) {
  Values values;
  values.reserve(keyed.size());
  for (const KeyedValue& item : keyed) values.push_back(item.value);
  return runtime.List(std::move(values));
}

Value SortFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool ignore_case = !parameters.True(runtime, 1, false);
  const auto paths = AttributePaths(runtime, parameters.Or(2, Value::None()), ignore_case);
  auto keyed = WithKeys(runtime, Items(runtime, value), paths);
  SortByKey(runtime, keyed, parameters.Integer(0, 0) != 0);
  return ValuesOf(runtime, keyed);
}

Value DictSortFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  bool by_value = false;
  if (parameters.Has(1)) {
    by_value = parameters.String(1) == Own("value");
    if (!by_value && parameters.String(1) != Own("key")) {
      throw Failure("dictsort sorts by 'key' or by 'value' only");
    }
  }
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (!value.Is(Kind::kDict)) throw Failure("dictsort needs a dict, not a " + TypeName(value));
  const AttributePath path(runtime, Value::None(), !parameters.True(runtime, 0, false));
  KeyedValues keyed;
  for (const auto& [key, item] : value.dict().items) {
    keyed.push_back({path.Get(runtime, by_value ? item : key), runtime.Tuple({key, item})});
  }
  SortByKey(runtime, keyed, parameters.Integer(2, 0) != 0);
  return ValuesOf(runtime, keyed);
}

template <bool kMax>
Value ExtremeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("min and max", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(runtime, parameters.Or(1, Value::None()),
                           !parameters.True(runtime, 0, false));
  IteratorObject& items = Iterate(runtime, value);
  auto best = items.Next(runtime);
  if (!best)
    return runtime.Undefined("there is no smallest or largest item, the sequence is empty");
  Value best_key = path.Get(runtime, *best);
  while (const auto item = items.Next(runtime)) {
    const Value key = path.Get(runtime, *item);
    if (kMax ? !Less(runtime, best_key, key) : !Less(runtime, key, best_key)) continue;
    best = item;
    best_key = key;
  }
  return *best;
}

Value SumFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  const AttributePath path(runtime, parameters.Or(0, Value::None()), false);
  Value total = parameters.Or(1, Value::Integer(0));
  if (total.Is(Kind::kString)) throw Failure("sum cannot add up texts");
  IteratorObject& items = Iterate(runtime, value);
  while (const auto item = items.Next(runtime)) {
    total = Binary(runtime, BinaryOp::kAdd, total, path.Get(runtime, *item));
  }
  return total;
}

Value GroupByFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool ignore_case = !parameters.True(runtime, 2, false);
  const Value otherwise = parameters.IsSet(1) ? parameters[1] : Value();
  const AttributePath path(runtime, parameters[0], ignore_case, otherwise);
  const AttributePath shown(runtime, parameters[0], false, otherwise);
  KeyedValues keyed;
  for (const Value& item : Items(runtime, value)) keyed.push_back({path.Get(runtime, item), item});
  SortByKey(runtime, keyed, false);
  Values groups;
  for (size_t at = 0; at < keyed.size();) {
    Values members;
    const size_t first = at;
    while (at < keyed.size() && Equal(runtime, keyed[at].key, keyed[first].key)) {
      members.push_back(keyed[at++].value);
    }
    if (members.empty()) members.push_back(keyed[at++].value);  // not equal to itself: nan
    const Value grouper = ignore_case ? shown.Get(runtime, keyed[first].value) : keyed[first].key;
    const Values pair = {grouper, runtime.List(std::move(members))};
    auto* group = runtime.heap().New<ListObject>(pair);
    group->is_group = true;
    groups.push_back(Value::Tuple(group));
  }
  return runtime.List(std::move(groups));
}

constexpr NamedFilter kSequenceFilters[] = {
    {"count", LengthFilter},    {"dictsort", DictSortFilter}, {"first", FirstFilter},
    {"groupby", GroupByFilter}, {"last", LastFilter},         {"length", LengthFilter},
    {"list", ListFilter},       {"max", ExtremeFilter<true>}, {"min", ExtremeFilter<false>},
    {"sort", SortFilter},       {"sum", SumFilter},
};

}  // namespace

FilterFn FindSequenceFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kSequenceFilters), std::end(kSequenceFilters),
                                   [&](const NamedFilter& filter) { return filter.name == name; });
  return found == std::end(kSequenceFilters) ? nullptr : found->function;
}

}  // namespace hearth::jinja
