// "allOf" of a JSON Schema as one schema.
#pragma once

#include "text/json_schema_parts.h"

namespace hearth {

// One per document: it counts what it merges, so that a small schema cannot become a large one.
class SchemaMerger {
 public:
  // Of a document, in which references are looked up. It must outlive this.
  explicit SchemaMerger(const SchemaJson& root) : root_(root) {}

  // What a schema with "allOf" says together with all of its parts: types and enumerations in
  // common, the closer bounds, the properties of all (those that two have are merged in turn), the
  // required ones of all. A lone part remains what it is, so that references may be recursive.
  // Throws Error(kUnsupported) for what cannot be said in one schema (two patterns, "anyOf" beside
  // other names) and Error(kInvalidArgument) for what allows nothing.
  SchemaJson Merged(const SchemaJson& schema) { return Flat(schema, 0); }

 private:
  void Count(const SchemaJson& schema, int depth);
  SchemaJson Flat(const SchemaJson& schema, int depth);
  SchemaJson Both(const SchemaJson& a, const SchemaJson& b, int depth);
  void AddProperties(const SchemaJson& a, const SchemaJson& b, SchemaJson& out, int depth);
  void AddOthers(const SchemaJson& a, const SchemaJson& b, SchemaJson& out, int depth);
  void AddName(const std::string& name, const SchemaJson& value, SchemaJson& out, int depth);

  const SchemaJson& root_;
  int64_t names_ = 0;  // that were merged
};

}  // namespace hearth
