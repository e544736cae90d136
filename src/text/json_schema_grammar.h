// Grammars of JSON: any object, or what a JSON Schema describes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/json_grammar_parts.h"
#include "text/json_schema_parts.h"

namespace hearth {

// Any JSON object.
std::shared_ptr<const Grammar> JsonObjectGrammar();

// Documents of a JSON Schema (a JSON text). Every text of the grammar is valid; of the valid texts
// it has those in a plain form: members in the order of "properties", then others where
// "additionalProperties" allows them by true or a schema (it counts as false where it is missing);
// little white space; numbers of at most 15 digits before and after the point.
// Knows type (one or a list), properties, required, additionalProperties, items, minItems,
// maxItems, enum, const, minLength, maxLength, pattern and format (json_string_pattern.h), minimum,
// maximum, exclusiveMinimum and exclusiveMaximum of integers, anyOf, oneOf where no document can be
// of two, allOf of what can be merged (json_schema_merge.h; so is what stands beside anyOf and
// oneOf), $ref to "#" and "#/...", a JSON pointer into the schema, and the names that only
// describe. Throws Error(kUnsupported) that names anything else, and Error(kInvalidArgument) for
// what is no schema; both say where in the schema that is.
std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema);

// The same as a part of a larger grammar: a rule for the documents of the schema. kObject: only
// those that are objects; Error(kUnsupported) for a schema of something else.
enum class JsonKind { kAny, kObject };
Grammar::Symbol AddJsonSchema(GrammarBuilder& builder, JsonGrammarParts& parts,
                              std::string_view schema, JsonKind kind);

// The same for parts of one schema, which may refer to its definitions, in their order.
std::vector<Grammar::Symbol> AddJsonSchemaParts(GrammarBuilder& builder, JsonGrammarParts& parts,
                                                const SchemaJson& root,
                                                const std::vector<const SchemaJson*>& schemas);

}  // namespace hearth
