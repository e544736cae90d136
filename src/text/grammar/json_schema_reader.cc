#include "text/grammar/json_schema_reader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "text/grammar/json_string_language.h"
#include "text/grammar/json_string_pattern.h"
#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

using Json = SchemaJson;
using ShapeList = std::vector<SchemaShape>;

constexpr int kDeepest = 60;
constexpr size_t kMostReaderSteps = 60'000;
constexpr size_t kMostShapes = 3'000;
constexpr int kDeepestProof = 3;  // of members and items that tell alternatives apart
constexpr size_t kMostCompared = 200;

constexpr uint8_t kNumbers = kIntegerKind | kFractionKind;

bool IsFalse(const Json& schema) { return schema.is_boolean() && !schema.get<bool>(); }

// The names that assert something.
std::vector<std::string> Assertions(const Json& schema) {
  std::vector<std::string> names;
  for (const auto& [name, value] : schema.items()) {
    if (IsAssertion(name)) names.push_back(name);
  }
  return names;
}

const Json& ListOf(const Json& schema, const char* name) {
  const Json& list = schema[name];
  if (!list.is_array() || list.empty()) {
    InvalidSchema("'" + std::string(name) + "' must be a list of schemas");
  }
  return list;
}

// The names of a schema that only has "required"; none of any other.
std::set<std::string> OnlyRequired(const Json& schema) {
  if (!schema.is_object() || Assertions(schema) != std::vector<std::string>{"required"}) return {};
  return RequiredNames(schema);
}

bool FindPlace(const Json& value, const Json* wanted, std::string& place) {
  if (&value == wanted) return true;
  if (!value.is_structured()) return false;
  for (const auto& [name, inside] : value.items()) {
    const size_t length = place.size();
    place += '/';
    for (const char letter : name) {
      if (letter == '~' || letter == '/') {
        place += letter == '~' ? "~0" : "~1";
      } else {
        place += letter;
      }
    }
    if (FindPlace(inside, wanted, place)) return true;
    place.resize(length);
  }
  return false;
}

}  // namespace

void SchemaReader::Count(size_t steps) {
  steps_ += steps;
  if (steps_ > kMostReaderSteps) UnsupportedSchema("it puts too many schemas together");
}

std::string SchemaReader::Place() const {
  std::string place;
  return at_ != nullptr && FindPlace(root_, at_, place) ? place : "";
}

const Json* SchemaReader::Target(const Json* schema) const {
  for (int i = 0; i < kDeepest && schema->is_object() && schema->contains("$ref"); ++i) {
    if (Assertions(*schema).size() > 1) break;
    schema = &ReferencedSchema(root_, *schema);
  }
  return schema;
}

ShapeList SchemaReader::Shapes(const SchemaSet& set) {
  ShapeList shapes = {SchemaShape()};
  for (const Json* schema : set) shapes = Product(shapes, Expand(*schema, 0));
  return shapes;
}

ShapeList SchemaReader::Product(const ShapeList& a, const ShapeList& b) {
  ShapeList product;
  Count(a.size() * b.size());
  for (const SchemaShape& one : a) {
    for (const SchemaShape& other : b) {
      SchemaShape both = Both(one, other);
      if (both.kinds == 0) continue;
      product.push_back(std::move(both));
    }
  }
  if (product.size() > kMostShapes) UnsupportedSchema("it has too many alternatives together");
  return product;
}

ShapeList SchemaReader::Expand(const Json& schema, int depth) {
  constexpr size_t kValuesOfStep = 4;
  Count(1);
  if (schema.is_object() && schema.contains("enum")) {
    Count(schema["enum"].size() / kValuesOfStep);
  }
  if (schema.is_boolean()) return schema.get<bool>() ? ShapeList{SchemaShape()} : ShapeList{};
  if (!schema.is_object()) {
    at_ = &schema;
    InvalidSchema("a schema must be an object or true");
  }
  if (depth > kDeepest) UnsupportedSchema("it is nested too deeply");
  if (!open_.insert(&schema).second) {
    at_ = &schema;
    InvalidSchema("a schema begins with itself");
  }
  at_ = &schema;
  ShapeList shapes = {ShapeOf(schema)};
  if (shapes[0].kinds == 0) shapes.clear();
  AddReferences(schema, depth, shapes);
  AddDependents(schema, depth, shapes);
  at_ = &schema;
  AddNegation(schema, shapes);
  if (schema.contains("oneOf")) shapes = OneOf(schema, shapes, depth);
  at_ = &schema;
  AddUnevaluated(schema, shapes);
  open_.erase(&schema);
  return shapes;
}

void SchemaReader::AddReferences(const Json& schema, int depth, ShapeList& shapes) {
  if (schema.contains("$ref")) {
    shapes = Product(shapes, Expand(ReferencedSchema(root_, schema), depth + 1));
  }
  if (schema.contains("allOf")) {
    for (const Json& part : ListOf(schema, "allOf")) {
      shapes = Product(shapes, Expand(part, depth + 1));
    }
  }
  if (schema.contains("anyOf")) {
    shapes = Product(shapes, AnyOf(ListOf(schema, "anyOf"), depth));
  }
}

ShapeList SchemaReader::AnyOf(const Json& list, int depth) {
  ShapeList all;
  for (const Json& one : list) {
    ShapeList shapes = Expand(one, depth + 1);
    std::move(shapes.begin(), shapes.end(), std::back_inserter(all));
    if (all.size() > kMostShapes) UnsupportedSchema("it has too many alternatives together");
  }
  return all;
}

SchemaShape SchemaReader::WithoutMember(const std::string& name) {
  Json& properties = made_.emplace_back(Json::object());
  properties[name] = false;
  SchemaShape shape;
  shape.objects.members.push_back({&properties, nullptr, nullptr});
  return shape;
}

void SchemaReader::AddDependents(const Json& schema, int depth, ShapeList& shapes) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas"}) {
    if (!schema.contains(keyword)) continue;
    if (!schema[keyword].is_object()) {
      InvalidSchema("'" + std::string(keyword) + "' must be an object");
    }
    for (const auto& [name, demand] : schema[keyword].items()) {
      ShapeList alternatives = {WithoutMember(name)};
      if (keyword == std::string("dependentSchemas")) {
        SchemaShape with;
        with.objects.required = {name};
        for (SchemaShape& shape : Product({with}, Expand(demand, depth + 1))) {
          alternatives.push_back(std::move(shape));
        }
      } else {
        SchemaShape with;
        for (const std::string& other : RequiredNames(Json{{"required", demand}})) {
          with.objects.required.push_back(other);
        }
        alternatives.push_back(with);
      }
      shapes = Product(shapes, alternatives);
    }
  }
}

// Of "not" what can be said: nothing, types, values, a name that must not be there.
void SchemaReader::AddNegation(const Json& schema, ShapeList& shapes) {
  if (!schema.contains("not")) return;
  const Json& no = *Target(&schema["not"]);
  if (IsFalse(no)) return;
  if (SaysNothing(no)) {
    shapes.clear();
    return;
  }
  const std::vector<std::string> names =
      no.is_object() ? Assertions(no) : std::vector<std::string>();
  SchemaShape rest;
  if (names == std::vector<std::string>{"type"}) {
    const uint8_t kinds = ShapeOf(no).kinds;
    rest.kinds &= static_cast<uint8_t>(~kinds);
  } else if (names == std::vector<std::string>{"const"} ||
             names == std::vector<std::string>{"enum"}) {
    rest.forbidden = *ShapeOf(no).values;
  } else if (OnlyRequired(no).size() == 1) {
    rest = WithoutMember(*OnlyRequired(no).begin());
    rest.kinds = kObjectKind;
  } else {
    UnsupportedSchema("'not' is supported for a type, values and one required name only");
  }
  shapes = Product(shapes, {rest});
}

// The same, but members that it says nothing of are forbidden.
SchemaShape SchemaReader::Closed(const SchemaShape& shape) {
  if (shape.SaysOthers() || shape.values || shape.PropertyNames().empty()) return shape;
  Json& properties = made_.emplace_back(Json::object());
  for (const std::string& name : shape.PropertyNames()) properties[name] = true;
  for (const std::string& name : shape.objects.required) properties[name] = true;
  SchemaShape closed = shape;
  closed.objects.members.push_back({&properties, nullptr, NoSchema()});
  return closed;
}

void SchemaReader::AddUnevaluated(const Json& schema, ShapeList& shapes) {
  for (const char* name : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (!schema.contains(name) || SaysNothing(schema[name])) continue;
    if (!IsFalse(schema[name])) {
      UnsupportedSchema("'" + std::string(name) + "' is supported as true or false only");
    }
    for (SchemaShape& shape : shapes) {
      if (std::string(name) == "unevaluatedItems") {
        if (shape.arrays.says_rest) continue;
        shape.arrays.rest = {NoSchema()};
        shape.arrays.says_rest = true;
      } else if (shape.SaysOthers()) {
        const auto& members = shape.objects.members;
        const bool takes_all =
            std::any_of(members.begin(), members.end(),
                        [](const SchemaShape::Members& one) { return one.others != nullptr; });
        if (!takes_all) UnsupportedSchema("'unevaluatedProperties' beside 'patternProperties'");
      } else {
        // A name that is required but not described is not evaluated.
        Json& properties = made_.emplace_back(Json::object());
        for (const std::string& known : shape.PropertyNames()) properties[known] = true;
        shape.objects.members.push_back({&properties, nullptr, NoSchema()});
      }
    }
  }
}

// Alternatives that only require names exclude each other where each is without a name that the
// others require.
ShapeList SchemaReader::OneOf(const Json& schema, const ShapeList& beside, int depth) {
  const Json& list = ListOf(schema, "oneOf");
  std::vector<ShapeList> branches;
  const bool only_required =
      list.size() > 1 && std::all_of(list.begin(), list.end(),
                                     [](const Json& one) { return !OnlyRequired(one).empty(); });
  for (const Json& one : list) {
    ShapeList shapes = Product(beside, Expand(one, depth + 1));
    if (only_required) {
      for (const Json& other : list) {
        if (&other == &one) continue;
        for (const std::string& name : OnlyRequired(other)) {
          if (OnlyRequired(one).count(name) > 0) continue;
          SchemaShape without = WithoutMember(name);
          without.kinds = kObjectKind;
          shapes = Product(shapes, {without});
          break;
        }
      }
    }
    branches.push_back(std::move(shapes));
  }
  at_ = &schema;
  if (!is_loose_) {
    auto known = must_close_.find(&schema);
    if (known == must_close_.end()) {
      const bool must_close = !AreDisjoint(branches, false);
      if (must_close && !AreDisjoint(branches, true)) {
        UnsupportedSchema("'oneOf' of schemas that may allow the same document; try 'anyOf'");
      }
      known = must_close_.emplace(&schema, must_close).first;
    }
    if (known->second) {
      for (ShapeList& shapes : branches) {
        for (SchemaShape& shape : shapes) shape = Closed(shape);
      }
    }
  }
  ShapeList all;
  for (ShapeList& shapes : branches) {
    std::move(shapes.begin(), shapes.end(), std::back_inserter(all));
  }
  if (all.size() > kMostShapes) UnsupportedSchema("it has too many alternatives together");
  return all;
}

const Json* SchemaReader::PlainAlternatives(const Json& schema) {
  if (!schema.is_object()) return nullptr;
  const std::vector<std::string> names = Assertions(schema);
  if (names.size() != 1 || (names[0] != "anyOf" && names[0] != "oneOf")) return nullptr;
  at_ = &schema;
  const Json& list = ListOf(schema, names[0].c_str());
  if (names[0] == "oneOf") {
    if (std::any_of(list.begin(), list.end(),
                    [](const Json& one) { return !OnlyRequired(one).empty(); })) {
      return nullptr;
    }
    Shapes({&schema});
    if (must_close_[&schema]) return nullptr;
  }
  return &list;
}

bool SchemaReader::AreDisjoint(const std::vector<ShapeList>& branches, bool closed) {
  std::vector<std::pair<const SchemaShape*, size_t>> objects, others;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (const SchemaShape& shape : branches[i]) {
      (shape.kinds == kObjectKind ? objects : others).emplace_back(&shape, i);
    }
  }
  // Proofs look into schemas that are being expanded, and take what may be for what is.
  std::set<const Json*> open;
  open.swap(open_);
  const Json* const at = at_;
  is_loose_ = true;
  const auto apart = [&](const auto& a, const auto& b) {
    return a.second == b.second || ExcludeEachOther(*a.first, *b.first, closed);
  };
  bool are_disjoint = true;
  try {
    for (size_t a = 0; a < others.size() && are_disjoint; ++a) {
      for (size_t b = a + 1; b < others.size() && are_disjoint; ++b) {
        are_disjoint = apart(others[a], others[b]);
      }
      for (const auto& object : objects) are_disjoint = are_disjoint && apart(others[a], object);
    }
    if (are_disjoint && !HaveTag(objects)) {
      if (objects.size() > kMostCompared) {
        UnsupportedSchema("'oneOf' of more than " + std::to_string(kMostCompared) +
                          " objects that no property tells apart");
      }
      for (size_t a = 0; a < objects.size() && are_disjoint; ++a) {
        for (size_t b = a + 1; b < objects.size() && are_disjoint; ++b) {
          are_disjoint = apart(objects[a], objects[b]);
        }
      }
    }
  } catch (...) {
    is_loose_ = false;
    throw;
  }
  is_loose_ = false;
  open_.swap(open);
  at_ = at;
  return are_disjoint;
}

bool SchemaReader::IsTag(const std::string& name,
                         const std::vector<std::pair<const SchemaShape*, size_t>>& objects) {
  std::map<std::string, size_t> owners;
  for (const auto& [shape, branch] : objects) {
    if (!shape->Requires(name)) return false;
    for (const SchemaShape& value : Shapes(shape->MemberSchemas(name))) {
      if (!value.values) return false;
      for (const Json* one : *value.values) {
        if (owners.emplace(EqualityText(*one), branch).first->second != branch) return false;
      }
    }
  }
  return true;
}

// Whether one property tells all of these objects apart.
bool SchemaReader::HaveTag(const std::vector<std::pair<const SchemaShape*, size_t>>& objects) {
  if (objects.size() < 2) return true;
  for (const std::string& name : objects[0].first->objects.required) {
    if (IsTag(name, objects)) return true;
  }
  return false;
}

// closed: members that an alternative says nothing of are not written.
bool SchemaReader::ExcludeEachOther(const SchemaShape& a, const SchemaShape& b, bool closed) {
  if ((a.kinds & b.kinds) == 0) return true;
  if (!closed) return IsEmpty(Both(a, b), 0);
  return IsEmpty(Both(Closed(a), b), 0) && IsEmpty(Both(a, Closed(b)), 0);
}

bool SchemaReader::IsEmpty(const SchemaSet& set, int depth) {
  const ShapeList shapes = Shapes(set);
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const SchemaShape& shape) { return IsEmpty(shape, depth); });
}

// Whether no document has this shape, as far as that is easy to say.
bool SchemaReader::IsEmpty(const SchemaShape& shape, int depth) {
  Count(1);
  if (shape.kinds == 0) return true;
  if (depth > kDeepestProof) return false;
  if (shape.values) {
    return std::none_of(shape.values->begin(), shape.values->end(),
                        [&](const Json* value) { return Accepts(shape, *value); });
  }
  if ((shape.kinds & (kNullKind | kBooleanKind)) != 0) return false;
  if ((shape.kinds & kNumbers) != 0 && !HasNoNumber(shape)) return false;
  if ((shape.kinds & kStringKind) != 0 && !HasNoString(shape)) return false;
  if ((shape.kinds & kArrayKind) != 0) {
    bool has_none = false;
    for (int64_t i = 0; i < std::min<int64_t>(shape.arrays.min, 8) && !has_none; ++i) {
      has_none = IsEmpty(shape.ItemSchemas(static_cast<size_t>(i)), depth + 1);
    }
    if (!has_none) return false;
  }
  if ((shape.kinds & kObjectKind) == 0) return true;
  const auto& required = shape.objects.required;
  return std::any_of(required.begin(), required.end(), [&](const std::string& name) {
    return IsEmpty(shape.MemberSchemas(name), depth + 1);
  });
}

bool SchemaReader::HasNoNumber(const SchemaShape& shape) const {
  if (!shape.numbers.low || !shape.numbers.high) return false;
  SchemaShape bounds;
  bounds.numbers = shape.numbers;
  bounds.kinds = shape.kinds & kNumbers;
  return Both(bounds, SchemaShape()).kinds == 0;
}

bool SchemaReader::HasNoString(const SchemaShape& shape) const {
  if (shape.strings.patterns.size() < 2) return false;
  StringLanguage language;
  for (const std::string& pattern : shape.strings.patterns) {
    language.Require(pattern, PatternClasses::kWide);
  }
  language.Bound(shape.strings.min, shape.strings.max);
  return language.IsEmpty();
}

bool SchemaReader::Accepts(const SchemaSet& set, const Json& value) {
  const ShapeList shapes = Shapes(set);
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const SchemaShape& shape) { return Accepts(shape, value); });
}

bool SchemaReader::Accepts(const SchemaShape& shape, const Json& value) {
  const uint8_t kind = KindOfValue(value);
  if ((shape.kinds & kind) == 0) return false;
  if (shape.values || !shape.forbidden.empty()) {
    const std::string text = EqualityText(value);
    const auto is_same = [&](const Json* other) { return EqualityText(*other) == text; };
    const auto& no = shape.forbidden;
    if (std::any_of(no.begin(), no.end(), is_same)) return false;
    if (shape.values && std::none_of(shape.values->begin(), shape.values->end(), is_same)) {
      return false;
    }
  }
  if ((kind & kNumbers) != 0) {
    const Decimal number = DecimalOf(value);
    return shape.numbers.Hold(number) &&
           std::all_of(shape.units.begin(), shape.units.end(),
                       [&](const Decimal& unit) { return IsMultiple(number, unit); });
  }
  if (kind == kStringKind) return AcceptsString(shape, value.get<std::string>());
  if (kind == kArrayKind) return AcceptsArray(shape, value);
  if (kind == kObjectKind) return AcceptsObject(shape, value);
  return true;
}

bool SchemaReader::AcceptsString(const SchemaShape& shape, const std::string& text) const {
  StringLanguage language;
  language.Bound(shape.strings.min, shape.strings.max);
  for (const std::string& pattern : shape.strings.patterns) {
    language.Require(pattern, is_loose_ ? PatternClasses::kWide : PatternClasses::kNarrow);
  }
  for (const std::string& format : shape.strings.formats) {
    const std::string pattern = is_loose_ ? "" : PatternOfFormat(format);
    if (!pattern.empty()) language.Require(pattern);
  }
  return language.Matches(text);
}

bool SchemaReader::AcceptsArray(const SchemaShape& shape, const Json& value) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < shape.arrays.min || (shape.arrays.max >= 0 && size > shape.arrays.max)) return false;
  std::set<std::string> seen;
  for (size_t i = 0; i < value.size(); ++i) {
    if (shape.arrays.is_unique && !seen.insert(EqualityText(value[i])).second) return false;
    if (!Accepts(shape.ItemSchemas(i), value[i])) return false;
  }
  return true;
}

bool SchemaReader::AcceptsObject(const SchemaShape& shape, const Json& value) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < shape.objects.min || (shape.objects.max >= 0 && size > shape.objects.max)) {
    return false;
  }
  for (const std::string& name : shape.objects.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (!Accepts(shape.objects.names, Json(name))) return false;
    if (!Accepts(shape.MemberSchemas(name), member)) return false;
  }
  return true;
}

}  // namespace hearth
