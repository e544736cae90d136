// Grammars of JSON: any object, or what a JSON Schema describes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/grammar/json_schema_parts.h"

namespace hearth {

// Any JSON object.
std::shared_ptr<const Grammar> JsonObjectGrammar();

// Documents of a JSON Schema (a JSON text). Every text of the grammar is valid (Draft 2020-12,
// formats asserted); of the valid texts it has those in a plain form: members in the order of
// "properties", then others where "additionalProperties" or "patternProperties" allows them by true
// or a schema; little white space; numbers of at most 15 digits before and after the point. Bounds
// beyond what grammars hold are taken for nearer ones.
// Knows the assertions of Draft 2020-12 except "contains", "if" and references that are dynamic or
// leave the document; "not" of types, values and a required name; "oneOf" where no document can be
// of two; "uniqueItems" where the items are listed; "multipleOf" of whole numbers and parts of 1;
// patterns and formats as json_string_pattern.h says. Other keywords are annotations. Throws
// Error(kUnsupported) that names what is not known, Error(kInvalidArgument) for what is not a
// schema or allows nothing, both saying where in the schema that is, and Error(kOutOfBudget) where
// `memory` (null: without bound) has no room. What it takes of that is counted before it is taken.
std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema,
                                                 std::shared_ptr<GrammarMemory> memory = nullptr);

// The same as a part of a larger grammar: a rule for the documents of the schema. kObject: only
// those that are objects.
enum class JsonKind { kAny, kObject };
Grammar::Symbol AddJsonSchema(GrammarBuilder& builder, JsonGrammarParts& parts,
                              std::string_view schema, JsonKind kind);

// The same for parts of one schema, which may refer to its definitions, in their order.
std::vector<Grammar::Symbol> AddJsonSchemaParts(GrammarBuilder& builder, JsonGrammarParts& parts,
                                                const SchemaJson& root,
                                                const std::vector<const SchemaJson*>& schemas);

}  // namespace hearth
