#include "text/grammar/json_schema_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "plan/json_reader.h"
#include "text/grammar/json_schema_compiler.h"

namespace hearth {
namespace {

using Json = SchemaJson;

constexpr size_t kMaxJsonDepth = 500;  // of values in a schema

// What parsing a text may take: a value, and its text beside it. Counted before it is parsed.
size_t ParsedBytes(std::string_view text) {
  constexpr size_t kValueBytes = 96;  // with its name and what a list keeps free
  // Each value is the first in what holds it, or comes after a comma.
  const auto values = std::count_if(text.begin(), text.end(),
                                    [](char c) { return c == ',' || c == '[' || c == '{'; });
  return (static_cast<size_t>(values) + 1) * kValueBytes + 2 * text.size();
}

Json ParsedSchema(std::string_view text) {
  const JsonLimits limits = {.most_levels = kMaxJsonDepth};
  Json json = ReadJson<Json>(text, limits, [](const std::string& why) { UnsupportedSchema(why); });
  if (json.is_discarded()) InvalidSchema("it is not valid JSON");
  return json;
}

const Json& ObjectSchema() {
  static const Json object = {{"type", "object"}};
  return object;
}

}  // namespace

std::shared_ptr<const Grammar> JsonObjectGrammar() {
  GrammarBuilder builder;
  const JsonGrammarParts parts(builder);
  return std::make_shared<const Grammar>(builder.Build(parts.object().index));
}

Grammar::Symbol AddJsonSchema(GrammarBuilder& builder, JsonGrammarParts& parts,
                              std::string_view schema, JsonKind kind) {
  builder.CountBytes(ParsedBytes(schema));
  const Json json = ParsedSchema(schema);
  SchemaCompiler compiler(json, builder, parts);
  try {
    SchemaSet set;
    AddSchema(set, &json);
    if (kind == JsonKind::kObject) AddSchema(set, &ObjectSchema());
    const Grammar::Symbol symbol = compiler.Compile(set);
    if (!builder.HasTexts(symbol)) {
      InvalidSchema(kind == JsonKind::kAny ? "it allows no document"
                                           : "it allows no object, which arguments must be");
    }
    return symbol;
  } catch (const Error& error) {
    FailAt(error, compiler.Place());
  }
}

std::vector<Grammar::Symbol> AddJsonSchemaParts(GrammarBuilder& builder, JsonGrammarParts& parts,
                                                const SchemaJson& root,
                                                const std::vector<const SchemaJson*>& schemas) {
  SchemaCompiler compiler(root, builder, parts);
  std::vector<Grammar::Symbol> symbols;
  for (const SchemaJson* schema : schemas) symbols.push_back(compiler.Compile({schema}));
  return symbols;
}

std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema,
                                                 std::shared_ptr<GrammarMemory> memory) {
  GrammarBuilder builder(std::move(memory));
  JsonGrammarParts parts(builder);
  const Grammar::Symbol document = AddJsonSchema(builder, parts, schema, JsonKind::kAny);
  try {
    return std::make_shared<const Grammar>(builder.Build(document.index));
  } catch (const Error& error) {
    FailAt(error, "");
  }
}

}  // namespace hearth
