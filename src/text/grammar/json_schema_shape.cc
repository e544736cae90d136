#include "text/grammar/json_schema_shape.h"

#include <algorithm>
#include <utility>

#include "text/grammar/json_string_language.h"

namespace hearth {
namespace {

using Json = SchemaJson;

constexpr uint8_t kNumberKinds = kIntegerKind | kFractionKind;

std::string QuotedName(const std::string& name) { return "'" + Printable(name) + "'"; }

uint8_t KindsOfNamedType(const std::string& type) {
  static const std::map<std::string, int> kinds = {
      {"null", kNullKind},     {"boolean", kBooleanKind}, {"integer", kIntegerKind},
      {"string", kStringKind}, {"array", kArrayKind},     {"object", kObjectKind},
      {"number", kNumberKinds}};
  const auto known = kinds.find(type);
  if (known == kinds.end()) InvalidSchema("'type' names no type of JSON");
  return static_cast<uint8_t>(known->second);
}

uint8_t KindsOfType(const Json& type) {
  if (type.is_string()) return KindsOfNamedType(type.get<std::string>());
  if (!type.is_array() || type.empty()) InvalidSchema("'type' must be a name or a list of names");
  uint8_t kinds = 0;
  for (const Json& name : type) {
    if (!name.is_string()) InvalidSchema("'type' must be a name or a list of names");
    kinds |= KindsOfNamedType(name.get<std::string>());
  }
  return kinds;
}

// A count, cut where grammars end to count; `otherwise` where it is not there.
int64_t CountOf(const Json& schema, const char* name, int64_t otherwise, bool is_upper) {
  constexpr int64_t kMostCounted = 1'000'000;
  if (!schema.contains(name)) return otherwise;
  const Json& value = schema[name];
  const Decimal count = value.is_number() ? DecimalOf(value) : Decimal{true, "1", ""};
  if (count.is_negative || !count.is_whole()) {
    InvalidSchema(QuotedName(name) + " must be a count");
  }
  if (Compare(count, DecimalOf(kMostCounted)) <= 0) return count.ToInteger();
  if (is_upper) return kMostCounted;
  UnsupportedSchema(QuotedName(name) + " is larger than 1000000");
}

void AddBound(const Json& schema, const char* name, bool is_low, bool is_excluded,
              NumberBounds& bounds) {
  if (!schema.contains(name)) return;
  const Json& value = schema[name];
  if (is_excluded && value.is_boolean()) {
    // Draft 4: "minimum" or "maximum" is itself excluded.
    auto& bound = is_low ? bounds.low : bounds.high;
    if (value.get<bool>() && bound) bound->is_excluded = true;
    return;
  }
  if (!value.is_number()) InvalidSchema(QuotedName(name) + " must be a number");
  NumberBounds more;
  (is_low ? more.low : more.high) = NumberBound{DecimalOf(value), is_excluded};
  auto& own = is_low ? bounds.low : bounds.high;
  const auto& other = is_low ? more.low : more.high;
  if (!own) {
    own = other;
    return;
  }
  const int order = Compare(other->value, own->value);
  if (order == 0) own->is_excluded |= other->is_excluded;
  if (order != 0 && (order > 0) == is_low) own = other;
}

void ReadNumbers(const Json& schema, SchemaShape& shape) {
  AddBound(schema, "minimum", true, false, shape.numbers);
  AddBound(schema, "maximum", false, false, shape.numbers);
  AddBound(schema, "exclusiveMinimum", true, true, shape.numbers);
  AddBound(schema, "exclusiveMaximum", false, true, shape.numbers);
  if (schema.contains("multipleOf")) {
    const Json& unit = schema["multipleOf"];
    const Decimal value = unit.is_number() ? DecimalOf(unit) : Decimal{};
    if (value.is_zero() || value.is_negative) {
      InvalidSchema("'multipleOf' must be a number above zero");
    }
    shape.units.push_back(value);
  }
  if (shape.numbers.low || shape.numbers.high || !shape.units.empty()) shape.hints |= kNumberKinds;
}

void ReadStrings(const Json& schema, SchemaShape& shape) {
  shape.strings.min = CountOf(schema, "minLength", 0, false);
  shape.strings.max = CountOf(schema, "maxLength", -1, true);
  for (const char* name : {"pattern", "format"}) {
    if (!schema.contains(name)) continue;
    if (!schema[name].is_string()) InvalidSchema(QuotedName(name) + " must be a text");
    auto& list = name[0] == 'p' ? shape.strings.patterns : shape.strings.formats;
    list.push_back(schema[name].get<std::string>());
  }
  const bool says =
      schema.contains("minLength") || schema.contains("maxLength") || schema.contains("pattern");
  if (says) shape.hints |= kStringKind;
}

void ReadArrays(const Json& schema, SchemaShape& shape) {
  SchemaShape::Arrays& arrays = shape.arrays;
  arrays.min = CountOf(schema, "minItems", 0, false);
  arrays.max = CountOf(schema, "maxItems", -1, true);
  const Json* prefix = schema.contains("prefixItems") ? &schema["prefixItems"] : nullptr;
  const Json* rest = schema.contains("items") ? &schema["items"] : nullptr;
  if (rest != nullptr && rest->is_array()) {  // before 2020
    prefix = rest;
    rest = schema.contains("additionalItems") ? &schema["additionalItems"] : nullptr;
  }
  if (prefix != nullptr) {
    if (!prefix->is_array()) InvalidSchema("'prefixItems' must be a list of schemas");
    for (const Json& item : *prefix) AddSchema(arrays.prefix.emplace_back(), &item);
  }
  if (rest != nullptr) {
    AddSchema(arrays.rest, rest);
    arrays.says_rest = true;
  }
  if (schema.contains("uniqueItems")) {
    if (!schema["uniqueItems"].is_boolean()) InvalidSchema("'uniqueItems' must be true or false");
    arrays.is_unique = schema["uniqueItems"].get<bool>();
  }
  for (const char* name : {"minItems", "maxItems", "prefixItems", "items", "uniqueItems"}) {
    if (schema.contains(name)) shape.hints |= kArrayKind;
  }
}

void ReadObjects(const Json& schema, SchemaShape& shape) {
  SchemaShape::Objects& objects = shape.objects;
  objects.min = CountOf(schema, "minProperties", 0, false);
  objects.max = CountOf(schema, "maxProperties", -1, true);
  SchemaShape::Members members;
  const auto take = [&](const char* name, bool is_map) -> const Json* {
    if (!schema.contains(name)) return nullptr;
    if (is_map && !schema[name].is_object()) {
      InvalidSchema(QuotedName(name) + " must be an object");
    }
    return &schema[name];
  };
  members.properties = take("properties", true);
  members.patterns = take("patternProperties", true);
  members.others = take("additionalProperties", false);
  if (members.properties != nullptr || members.patterns != nullptr || members.others != nullptr) {
    objects.members.push_back(members);
  }
  if (schema.contains("propertyNames")) AddSchema(objects.names, &schema["propertyNames"]);
  for (const std::string& name : RequiredNames(schema)) objects.required.push_back(name);
  for (const char* name : {"minProperties", "maxProperties", "properties", "patternProperties",
                           "additionalProperties", "propertyNames", "required"}) {
    if (schema.contains(name)) shape.hints |= kObjectKind;
  }
}

void ReadValues(const Json& schema, SchemaShape& shape) {
  if (schema.contains("enum")) {
    const Json& values = schema["enum"];
    if (!values.is_array() || values.empty()) InvalidSchema("'enum' must be a list of values");
    auto& list = shape.values.emplace();
    for (const Json& value : values) list.push_back(&value);
  }
  if (!schema.contains("const")) return;
  const std::string own = EqualityText(schema["const"]);
  const bool is_in =
      !shape.values || std::any_of(shape.values->begin(), shape.values->end(),
                                   [&](const Json* value) { return EqualityText(*value) == own; });
  auto& list = shape.values.emplace();
  if (is_in) list.push_back(&schema["const"]);
}

int64_t Nearer(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

template <typename T>
void AddAll(std::vector<T>& list, const std::vector<T>& more) {
  for (const T& one : more) {
    if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
  }
}

void AddArrays(SchemaShape::Arrays& arrays, const SchemaShape::Arrays& more) {
  arrays.min = std::max(arrays.min, more.min);
  arrays.max = Nearer(arrays.max, more.max);
  arrays.is_unique |= more.is_unique;
  const size_t places = std::max(arrays.prefix.size(), more.prefix.size());
  while (arrays.prefix.size() < places) {
    const SchemaSet rest = arrays.rest;
    arrays.prefix.push_back(rest);
  }
  for (size_t i = 0; i < places; ++i) {
    AddAll(arrays.prefix[i], i < more.prefix.size() ? more.prefix[i] : more.rest);
  }
  AddAll(arrays.rest, more.rest);
  arrays.says_rest |= more.says_rest;
}

void AddBounds(NumberBounds& bounds, const NumberBounds& more) {
  const auto add = [](std::optional<NumberBound>& own, const std::optional<NumberBound>& other,
                      bool is_low) {
    if (!other) return;
    const int order = own ? Compare(other->value, own->value) : 0;
    if (!own || (order != 0 && (order > 0) == is_low)) {
      own = other;
    } else if (order == 0) {
      own->is_excluded |= other->is_excluded;
    }
  };
  add(bounds.low, more.low, true);
  add(bounds.high, more.high, false);
}

void AddValues(SchemaShape& shape, const SchemaShape& more) {
  if (!more.values) return;
  if (!shape.values) {
    shape.values = more.values;
    return;
  }
  std::set<std::string> known;
  for (const Json* value : *more.values) known.insert(EqualityText(*value));
  auto& values = *shape.values;
  values.erase(
      std::remove_if(values.begin(), values.end(),
                     [&](const Json* value) { return known.count(EqualityText(*value)) == 0; }),
      values.end());
}

// Kinds of which nothing is left go.
void DropEmptyKinds(SchemaShape& shape) {
  const auto drop = [&](bool is_empty, uint8_t kinds) {
    if (is_empty) shape.kinds &= static_cast<uint8_t>(~kinds);
  };
  const auto crosses = [](int64_t min, int64_t max) { return max >= 0 && max < min; };
  drop(crosses(shape.strings.min, shape.strings.max), kStringKind);
  drop(crosses(shape.arrays.min, shape.arrays.max), kArrayKind);
  drop(crosses(shape.objects.min, shape.objects.max), kObjectKind);
  const NumberBounds& numbers = shape.numbers;
  if (numbers.low && numbers.high) {
    const int order = Compare(numbers.low->value, numbers.high->value);
    drop(order > 0 || (order == 0 && (numbers.low->is_excluded || numbers.high->is_excluded)),
         kNumberKinds);
    const bool is_near =
        numbers.low->value.whole.size() <= 15 && numbers.high->value.whole.size() <= 15;
    drop(is_near && !IntegersWithin(numbers), kIntegerKind);
  }
  if (shape.values && shape.values->empty()) shape.kinds = 0;
}

}  // namespace

const Json* NoSchema() {
  static const Json none = false;
  return &none;
}

void AddSchema(SchemaSet& set, const Json* schema) {
  if (schema->is_boolean() && !schema->get<bool>()) schema = NoSchema();
  if (SaysNothing(*schema) || std::find(set.begin(), set.end(), schema) != set.end()) return;
  set.push_back(schema);
}

bool SchemaShape::Requires(const std::string& name) const {
  return std::find(objects.required.begin(), objects.required.end(), name) !=
         objects.required.end();
}

std::vector<std::string> SchemaShape::PropertyNames() const {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Members& members : objects.members) {
    if (members.properties == nullptr) continue;
    for (const auto& [name, schema] : members.properties->items()) {
      if (known.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

SchemaSet SchemaShape::MemberSchemas(const std::string& name) const {
  SchemaSet set;
  for (const Members& members : objects.members) {
    bool is_known = false;
    if (members.properties != nullptr && members.properties->contains(name)) {
      is_known = true;
      AddSchema(set, &(*members.properties)[name]);
    }
    if (members.patterns != nullptr) {
      for (const auto& [pattern, schema] : members.patterns->items()) {
        StringLanguage language;
        language.Require(pattern, PatternClasses::kWide);
        if (!language.Matches(name)) continue;
        is_known = true;
        AddSchema(set, &schema);
      }
    }
    if (!is_known && members.others != nullptr) AddSchema(set, members.others);
  }
  return set;
}

bool SchemaShape::SaysOthers() const {
  return std::any_of(objects.members.begin(), objects.members.end(), [](const Members& members) {
    return members.others != nullptr || members.patterns != nullptr;
  });
}

const SchemaSet& SchemaShape::ItemSchemas(size_t place) const {
  return place < arrays.prefix.size() ? arrays.prefix[place] : arrays.rest;
}

SchemaShape ShapeOf(const Json& schema) {
  for (const char* name : {"contains", "dependencies", "$dynamicRef", "$recursiveRef"}) {
    if (schema.contains(name)) UnsupportedSchema(QuotedName(name) + " is not supported");
  }
  if (schema.contains("if") && (schema.contains("then") || schema.contains("else"))) {
    UnsupportedSchema("'if' is not supported");
  }
  SchemaShape shape;
  if (schema.contains("type")) shape.kinds = KindsOfType(schema["type"]);
  ReadValues(schema, shape);
  ReadNumbers(schema, shape);
  ReadStrings(schema, shape);
  ReadArrays(schema, shape);
  ReadObjects(schema, shape);
  DropEmptyKinds(shape);
  return shape;
}

SchemaShape Both(const SchemaShape& a, const SchemaShape& b) {
  SchemaShape both = a;
  both.kinds &= b.kinds;
  both.hints |= b.hints;
  AddValues(both, b);
  AddAll(both.forbidden, b.forbidden);
  AddBounds(both.numbers, b.numbers);
  for (const Decimal& unit : b.units) both.units.push_back(unit);
  both.strings.min = std::max(a.strings.min, b.strings.min);
  both.strings.max = Nearer(a.strings.max, b.strings.max);
  AddAll(both.strings.patterns, b.strings.patterns);
  AddAll(both.strings.formats, b.strings.formats);
  AddArrays(both.arrays, b.arrays);
  both.objects.min = std::max(a.objects.min, b.objects.min);
  both.objects.max = Nearer(a.objects.max, b.objects.max);
  for (const SchemaShape::Members& members : b.objects.members) {
    const auto is_same = [&](const SchemaShape::Members& other) {
      return other.properties == members.properties && other.patterns == members.patterns &&
             other.others == members.others;
    };
    auto& list = both.objects.members;
    if (std::none_of(list.begin(), list.end(), is_same)) list.push_back(members);
  }
  AddAll(both.objects.names, b.objects.names);
  AddAll(both.objects.required, b.objects.required);
  DropEmptyKinds(both);
  return both;
}

}  // namespace hearth
