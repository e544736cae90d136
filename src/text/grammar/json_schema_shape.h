// What schemas that all hold say together of documents, by type.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/json_decimal.h"
#include "text/grammar/json_schema_parts.h"

namespace hearth {

// Schemas that all hold, each once, none that says nothing. In their order in the document where
// that matters; they must outlive it.
using SchemaSet = std::vector<const SchemaJson*>;

// The schema false.
const SchemaJson* NoSchema();
// Adds a schema unless it is there.
void AddSchema(SchemaSet& set, const SchemaJson* schema);

// What of a document of one type is known; what is not said is not bounded. A document must keep to
// the part of its own type only.
struct SchemaShape {
  struct Strings {
    int64_t min = 0, max = -1;  // characters
    std::vector<std::string> patterns, formats;
  };
  struct Arrays {
    int64_t min = 0, max = -1;
    std::vector<SchemaSet> prefix;  // by position
    SchemaSet rest;                 // of all further items
    bool says_rest = false;
    bool is_unique = false;
  };
  // What one schema says of members: null where it does not.
  struct Members {
    const SchemaJson* properties = nullptr;
    const SchemaJson* patterns = nullptr;
    const SchemaJson* others = nullptr;
  };
  struct Objects {
    int64_t min = 0, max = -1;
    std::vector<Members> members;
    SchemaSet names;
    std::vector<std::string> required;
  };

  uint8_t kinds = kAllKinds;
  uint8_t hints = 0;  // kinds that it says something of
  // Only these.
  std::optional<std::vector<const SchemaJson*>> values;
  std::vector<const SchemaJson*> forbidden;  // none of these
  NumberBounds numbers;
  std::vector<Decimal> units;  // "multipleOf"
  Strings strings;
  Arrays arrays;
  Objects objects;

  bool Requires(const std::string& name) const;
  // What a member of that name must keep to.
  SchemaSet MemberSchemas(const std::string& name) const;
  // The names of properties, in their order.
  std::vector<std::string> PropertyNames() const;
  // Whether it says what members that are no properties must be.
  bool SaysOthers() const;
  // What the item at that place must keep to.
  const SchemaSet& ItemSchemas(size_t place) const;
};

// What the schema's own names say, without those that hold other schemas for the same document
// ("$ref", "allOf", "anyOf", "oneOf", "not", "dependentRequired" ...). Throws Error(kUnsupported)
// and Error(kInvalidArgument) that name what is wrong.
SchemaShape ShapeOf(const SchemaJson& schema);

// What both say. Kinds of which nothing is left are gone.
SchemaShape Both(const SchemaShape& a, const SchemaShape& b);

}  // namespace hearth
