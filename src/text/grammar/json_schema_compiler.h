// Rules for the documents of schemas; json_schema_grammar.h is what others use.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/grammar/json_schema_reader.h"
#include "text/grammar/json_string_language.h"

namespace hearth {

// One per document, which must outlive it. Every text of its rules keeps to the schemas. Errors are
// those of JsonSchemaGrammar, without the place.
class SchemaCompiler {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = GrammarBuilder::Sequence;

  SchemaCompiler(const SchemaJson& root, GrammarBuilder& builder, JsonGrammarParts& parts)
      : reader_(root), builder_(builder), parts_(parts) {}

  // A rule for values that keep to all of them. It has no text where there are none.
  Symbol Compile(SchemaSet set);
  // What was looked at last, as a JSON pointer.
  std::string Place() const { return reader_.Place(); }

 private:
  // How often members or items may come, cut where a larger number makes no difference.
  struct Counts {
    int64_t min = 0, max = -1;
    int64_t highest() const;  // that differs from larger ones
    int64_t After(int64_t count) const;
    bool TakesMore(int64_t count) const { return max < 0 || count < max; }
  };
  struct Entry {
    Sequence text;
    bool is_required = false;
  };
  struct OtherKey {
    Symbol key;
    SchemaSet value;
  };

  Symbol Inside(SchemaSet set);
  void AddShape(uint32_t rule, const SchemaShape& shape);
  Symbol Values(const SchemaShape& shape);
  Symbol Numbers(const SchemaShape& shape);
  Symbol Multiples(const SchemaShape& shape);
  Symbol Strings(const SchemaShape& shape);
  Symbol NewStrings(const SchemaShape& shape);
  void AddStrings(const SchemaShape& shape, StringLanguage& language) const;
  Symbol Booleans(const SchemaShape& shape);
  void CheckForbidden(const SchemaShape& shape, uint8_t kinds) const;

  Symbol Array(const SchemaShape& shape);
  Symbol Items(const SchemaShape& shape, int64_t max);
  Symbol UniqueItems(const SchemaShape& shape);
  std::vector<std::string> ListedValues(const SchemaSet& set);
  Symbol Object(const SchemaShape& shape);
  std::vector<Entry> Properties(const SchemaShape& shape, std::set<std::string>& names);
  bool AddListedNames(const SchemaShape& shape, std::set<std::string>& names,
                      std::vector<Entry>& entries);
  Entry Member(const SchemaShape& shape, const std::string& name);
  std::vector<OtherKey> OtherKeys(const SchemaShape& shape, const std::set<std::string>& names);
  std::vector<Sequence> Others(const SchemaShape& shape, const std::set<std::string>& names);
  std::vector<Symbol> InOrder(const std::vector<Entry>& entries, const Counts& counts,
                              std::vector<Symbol> after);
  Sequence AfterComma(const Sequence& sequence) const;

  SchemaReader reader_;
  GrammarBuilder& builder_;
  JsonGrammarParts& parts_;
  std::map<SchemaSet, uint32_t> rules_;  // by what they keep to
  std::set<uint32_t> open_;              // rules that nothing was written of yet
  std::map<std::string, Symbol> strings_;
  int depth_ = 0;
};

}  // namespace hearth
