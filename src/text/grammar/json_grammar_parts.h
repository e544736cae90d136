// The rules that all JSON has.
#pragma once

#include <set>
#include <string>

#include "text/grammar/grammar.h"

namespace hearth {

class JsonGrammarParts {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = GrammarBuilder::Sequence;

  explicit JsonGrammarParts(GrammarBuilder& builder);

  Symbol space() const { return space_; }          // none, a space, or a line break and spaces
  Symbol character() const { return character_; }  // of a string, escapes too
  Symbol string() const { return string_; }        // any
  Symbol string_of(int64_t min, int64_t max);      // so many characters
  Symbol integer() const { return integer_; }
  Symbol number() const { return number_; }
  Symbol value() const { return value_; }    // any
  Symbol object() const { return object_; }  // any
  Symbol array() const { return array_; }    // any
  // A string of plain ASCII letters that is none of `names`.
  Symbol other_key(const std::set<std::string>& names);
  // "[ item, item ]" with so many items, "{ member, member }" likewise.
  Sequence list(char open, char close, const Sequence& item, int64_t min, int64_t max);

 private:
  void MakeStrings();
  void MakeNumbers();
  void MakeValues();
  Symbol digits(int64_t min, int64_t max);
  Symbol key_suffix(const std::set<std::string>& names, const std::string& prefix);

  GrammarBuilder& builder_;
  Symbol space_, character_, plain_key_letter_, string_, integer_, number_, value_, object_, array_;
};

}  // namespace hearth
