// Arrays and objects of the schema compiler.
#include <algorithm>

#include "text/grammar/json_schema_compiler.h"
#include "text/grammar/json_string_pattern.h"

namespace hearth {
namespace {

using Json = SchemaJson;
using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

constexpr int64_t kMostCountedRules = 20'000;
constexpr int64_t kMostListedItems = 300;
constexpr size_t kMostKeyPatterns = 8;

}  // namespace

int64_t SchemaCompiler::Counts::highest() const { return std::max({int64_t{1}, min, max}); }

int64_t SchemaCompiler::Counts::After(int64_t count) const {
  return std::min(count + 1, highest());
}

Sequence SchemaCompiler::AfterComma(const Sequence& sequence) const {
  Sequence next = {builder_.Byte(','), parts_.space()};
  next.insert(next.end(), sequence.begin(), sequence.end());
  return next;
}

// What may follow where so many entries have come, by their number: after[n] what follows the last
// entry. Entries come in their order; those that are not required may be left out.
std::vector<Symbol> SchemaCompiler::InOrder(const std::vector<Entry>& entries, const Counts& counts,
                                            std::vector<Symbol> after) {
  const int64_t highest = counts.highest();
  if (static_cast<int64_t>(entries.size()) > kMostCountedRules / (highest + 1)) {
    UnsupportedSchema("it counts too many members or items");
  }
  for (size_t i = entries.size(); i-- > 0;) {
    const Symbol entry = builder_.AnyOf({entries[i].text});
    std::vector<Symbol> before;
    for (int64_t count = 0; count <= highest; ++count) {
      std::vector<Sequence> ways;
      if (counts.TakesMore(count)) {
        Sequence with = count == 0 ? Sequence{entry} : AfterComma({entry});
        with.push_back(after[static_cast<size_t>(counts.After(count))]);
        ways.push_back(std::move(with));
      }
      if (!entries[i].is_required) ways.push_back({after[static_cast<size_t>(count)]});
      before.push_back(builder_.AnyOf(ways));
    }
    after = std::move(before);
  }
  return after;
}

Symbol SchemaCompiler::Array(const SchemaShape& shape) {
  CheckForbidden(shape, kArrayKind);
  const SchemaShape::Arrays& arrays = shape.arrays;
  const auto places = static_cast<int64_t>(arrays.prefix.size());
  int64_t max = arrays.max;
  // Further items are written where something is said of them, or they must be.
  if (max < 0 && !arrays.says_rest && places > 0) max = std::max(places, arrays.min);
  if (arrays.is_unique && (max < 0 || max > 1)) return UniqueItems(shape);
  return Items(shape, max);
}

Symbol SchemaCompiler::Items(const SchemaShape& shape, int64_t max) {
  const SchemaShape::Arrays& arrays = shape.arrays;
  const auto places = static_cast<int64_t>(arrays.prefix.size());
  if (places == 0) {
    const Symbol item = max == 0 ? builder_.Nothing() : Inside(arrays.rest);
    return builder_.AnyOf({parts_.list('[', ']', {item}, arrays.min, max)});
  }
  const Symbol end = builder_.AnyOf({{parts_.space(), builder_.Byte(']')}});
  const int64_t least = std::max<int64_t>(arrays.min - places, 0);
  Symbol after = builder_.Nothing();
  if (max < 0 || max > places) {
    const Sequence more = AfterComma({Inside(arrays.rest)});
    after = builder_.AnyOf({{builder_.Repeat(more, least, max < 0 ? -1 : max - places), end}});
  } else if (max == places) {
    after = end;
  }
  for (int64_t i = places; i-- > 0;) {
    std::vector<Sequence> ways;
    if (i >= arrays.min) ways.push_back({i == 0 ? Symbol(builder_.Byte(']')) : end});
    if (max < 0 || i < max) {
      const Sequence item = {Inside(arrays.prefix[static_cast<size_t>(i)]), after};
      ways.push_back(i == 0 ? item : AfterComma(item));
    }
    after = builder_.AnyOf(ways);
  }
  return builder_.AnyOf({{builder_.Byte('['), parts_.space(), after}});
}

// The texts of all values, where they are listed; none where they are not.
std::vector<std::string> SchemaCompiler::ListedValues(const SchemaSet& set) {
  std::vector<std::string> texts;
  std::set<std::string> seen;
  const auto add = [&](const Json& value) {
    if (seen.insert(EqualityText(value)).second) texts.push_back(JsonText(value));
  };
  for (const SchemaShape& shape : reader_.Shapes(set)) {
    if (shape.values) {
      for (const Json* value : *shape.values) {
        if (reader_.judge().Accepts(shape, *value)) add(*value);
      }
      continue;
    }
    const auto range = IntegersWithin(shape.numbers);
    const bool is_short = shape.kinds == kIntegerKind && shape.units.empty() &&
                          shape.forbidden.empty() && range &&
                          range->high - range->low < kMostListedItems;
    const bool is_word =
        (shape.kinds & ~(kNullKind | kBooleanKind)) == 0 && shape.forbidden.empty();
    if (is_short) {
      for (int64_t i = range->low; i <= range->high; ++i) add(i);
    } else if (is_word) {
      if ((shape.kinds & kNullKind) != 0) add(nullptr);
      if ((shape.kinds & kBooleanKind) != 0) add(true);
      if ((shape.kinds & kBooleanKind) != 0) add(false);
    } else {
      return {};
    }
  }
  return texts;
}

// Each of the listed values at most once, in their order.
Symbol SchemaCompiler::UniqueItems(const SchemaShape& shape) {
  const SchemaShape::Arrays& arrays = shape.arrays;
  const std::vector<std::string> values = ListedValues(arrays.rest);
  if (!arrays.prefix.empty() || values.empty() ||
      static_cast<int64_t>(values.size()) > kMostListedItems) {
    UnsupportedSchema("'uniqueItems' is supported where 'enum' lists the items, up to " +
                      std::to_string(kMostListedItems) + ", only");
  }
  const auto most = static_cast<int64_t>(values.size());
  const Counts counts{arrays.min, arrays.max >= most ? -1 : arrays.max};
  std::vector<Entry> entries;
  for (const std::string& value : values) entries.push_back({builder_.Literal(value), false});
  std::vector<Symbol> after;
  for (int64_t count = 0; count <= counts.highest(); ++count) {
    after.push_back(count < counts.min ? builder_.Nothing()
                                       : builder_.AnyOf({{parts_.space(), builder_.Byte(']')}}));
  }
  const Symbol all = InOrder(entries, counts, std::move(after))[0];
  return builder_.AnyOf({{builder_.Byte('['), all}});
}

SchemaCompiler::Entry SchemaCompiler::Member(const SchemaShape& shape, const std::string& name) {
  const SchemaSet set = shape.MemberSchemas(name);
  Entry entry;
  entry.is_required = shape.Requires(name);
  const bool is_nothing = std::find(set.begin(), set.end(), NoSchema()) != set.end();
  if (is_nothing || !reader_.judge().Accepts(shape.objects.names, Json(name))) {
    entry.text = {builder_.Nothing()};
    return entry;
  }
  entry.text = builder_.Literal(JsonText(name));
  entry.text.push_back(builder_.Byte(':'));
  entry.text.push_back(parts_.space());
  entry.text.push_back(Inside(set));
  return entry;
}

std::vector<SchemaCompiler::Entry> SchemaCompiler::Properties(const SchemaShape& shape,
                                                              std::set<std::string>& names) {
  std::vector<Entry> entries;
  std::vector<std::string> all = shape.PropertyNames();
  const std::vector<std::string>& required = shape.objects.required;
  all.insert(all.end(), required.begin(), required.end());
  for (const std::string& name : all) {
    if (names.insert(name).second) entries.push_back(Member(shape, name));
  }
  return entries;
}

// Where "propertyNames" lists them: true, and the members of those that are not among the names.
bool SchemaCompiler::AddListedNames(const SchemaShape& shape, std::set<std::string>& names,
                                    std::vector<Entry>& entries) {
  const std::vector<SchemaShape> shapes = reader_.Shapes(shape.objects.names);
  if (!std::all_of(shapes.begin(), shapes.end(),
                   [](const SchemaShape& one) { return one.values.has_value(); })) {
    return false;
  }
  for (const SchemaShape& one : shapes) {
    for (const Json* value : *one.values) {
      if (!value->is_string() || !names.insert(value->get<std::string>()).second) continue;
      entries.push_back(Member(shape, value->get<std::string>()));
    }
  }
  return true;
}

// The keys of members that are no properties, with what their values must be.
std::vector<SchemaCompiler::OtherKey> SchemaCompiler::OtherKeys(
    const SchemaShape& shape, const std::set<std::string>& names) {
  std::vector<std::string> patterns;
  bool says_others = false, has_properties = false;
  for (const SchemaShape::Members& members : shape.objects.members) {
    says_others |= members.others != nullptr;
    has_properties |= members.properties != nullptr;
    if (members.patterns == nullptr) continue;
    for (const auto& [pattern, schema] : members.patterns->items()) {
      if (std::count(patterns.begin(), patterns.end(), pattern) == 0) patterns.push_back(pattern);
    }
  }
  if (patterns.size() > kMostKeyPatterns) {
    UnsupportedSchema("'patternProperties' of more than 8 patterns");
  }
  std::vector<OtherKey> keys;
  const auto add = [&](const std::string* own) {
    SchemaSet value;
    for (const SchemaShape::Members& members : shape.objects.members) {
      const bool has_own =
          own != nullptr && members.patterns != nullptr && members.patterns->contains(*own);
      if (has_own) AddSchema(value, &(*members.patterns)[*own]);
      if (!has_own && members.others != nullptr) AddSchema(value, members.others);
    }
    if (std::find(value.begin(), value.end(), NoSchema()) != value.end()) return;
    if (patterns.empty() && shape.objects.names.empty()) {
      keys.push_back({parts_.other_key(names), value});
      return;
    }
    for (const SchemaShape& name : reader_.Shapes(shape.objects.names)) {
      if ((name.kinds & kStringKind) == 0) continue;
      const bool is_any = name.strings.min == 0 && name.strings.max < 0 &&
                          name.strings.patterns.empty() && name.strings.formats.empty() &&
                          name.forbidden.empty();
      if (is_any && patterns.empty()) {
        keys.push_back({parts_.other_key(names), value});
        continue;
      }
      StringLanguage language;
      if (own != nullptr) language.Require(*own);
      for (const std::string& pattern : patterns) {
        if (own == nullptr || pattern != *own) language.Forbid(pattern);
      }
      language.ForbidTexts({names.begin(), names.end()});
      AddStrings(name, language);
      keys.push_back({language.Compile(builder_), value});
    }
  };
  for (const std::string& pattern : patterns) add(&pattern);
  if (says_others || (!has_properties && patterns.empty())) add(nullptr);
  return keys;
}

std::vector<Sequence> SchemaCompiler::Others(const SchemaShape& shape,
                                             const std::set<std::string>& names) {
  std::vector<Sequence> others;
  for (const OtherKey& one : OtherKeys(shape, names)) {
    others.push_back({one.key, builder_.Byte(':'), parts_.space(), Inside(one.value)});
  }
  return others;
}

Symbol SchemaCompiler::Object(const SchemaShape& shape) {
  CheckForbidden(shape, kObjectKind);
  std::set<std::string> names;
  std::vector<Entry> entries = Properties(shape, names);
  std::vector<Sequence> others;
  const bool are_listed = !shape.objects.names.empty() && AddListedNames(shape, names, entries);
  if (!are_listed && shape.objects.max != 0) others = Others(shape, names);
  const auto most = static_cast<int64_t>(entries.size());
  Counts counts{shape.objects.min, shape.objects.max};
  if (others.empty() && counts.max >= most) counts.max = -1;
  if (counts.min > most + 1) {
    if (others.empty()) return builder_.Nothing();
    // One key may come twice, and counts once.
    UnsupportedSchema("'minProperties' is larger than the number of properties, and 1");
  }
  // Fewer than there may be, so that they can be counted.
  if (counts.max > 0) {
    counts.max = std::min(counts.max, std::max(counts.min, kMostCountedRules / (most + 1) - 2));
  }
  const Symbol close = builder_.AnyOf({{parts_.space(), builder_.Byte('}')}});
  const Symbol other = builder_.AnyOf(others);
  std::vector<Symbol> after;
  for (int64_t count = 0; count <= counts.highest(); ++count) {
    const int64_t least = std::max<int64_t>(counts.min - count, 0);
    const int64_t room = counts.max < 0 ? -1 : counts.max - count;
    std::vector<Sequence> ways;
    if (least == 0) ways.push_back({count == 0 ? Symbol(builder_.Byte('}')) : close});
    if (!others.empty() && least <= 1 && room != 0) {
      const Symbol more = builder_.Repeat(AfterComma({other}), 0, room < 0 ? -1 : room - 1);
      ways.push_back(count == 0 ? Sequence{other, more, close}
                                : Sequence{builder_.Byte(','), parts_.space(), other, more, close});
    }
    after.push_back(builder_.AnyOf(ways));
  }
  const Symbol members = InOrder(entries, counts, std::move(after))[0];
  return builder_.AnyOf({{builder_.Byte('{'), parts_.space(), members}});
}

}  // namespace hearth
