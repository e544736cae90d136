#include "text/grammar/json_schema_reader.h"

#include <algorithm>
#include <utility>

namespace hearth {
namespace {

using Json = SchemaJson;
using ShapeList = std::vector<SchemaShape>;

constexpr int kDeepest = 60;
constexpr size_t kMostReaderSteps = 60'000;
constexpr size_t kMostShapes = 3'000;

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
  if (!judge_.is_loose()) {
    auto known = must_close_.find(&schema);
    if (known == must_close_.end()) {
      const bool must_close = !judge_.AreDisjoint(branches, false);
      if (must_close && !judge_.AreDisjoint(branches, true)) {
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

}  // namespace hearth
