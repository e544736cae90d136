#include "text/grammar/json_grammar_parts.h"

#include <algorithm>

namespace hearth {
namespace {

constexpr int64_t kMaxDigits = 15;
constexpr int64_t kMaxIndent = 16;

ByteSet BytesFrom(size_t first, size_t last) {
  ByteSet set;
  for (size_t byte = first; byte <= last; ++byte) set.set(byte);
  return set;
}

}  // namespace

JsonGrammarParts::JsonGrammarParts(GrammarBuilder& builder) : builder_(builder) {
  const Symbol blank = builder.Byte(' ');
  space_ =
      builder.AnyOf({{}, {blank}, {builder.Byte('\n'), builder.Repeat({blank}, 0, kMaxIndent)}});
  MakeStrings();
  MakeNumbers();
  MakeValues();
}

void JsonGrammarParts::MakeStrings() {
  const auto range = [&](unsigned char first, unsigned char last) {
    return builder_.Range(first, last);
  };
  ByteSet ascii = BytesFrom(0x20, 0x7E);
  ascii.reset('"');
  ascii.reset('\\');
  plain_key_letter_ = builder_.Bytes(ascii);
  ByteSet hex = BytesFrom('0', '9') | BytesFrom('a', 'f') | BytesFrom('A', 'F');
  ByteSet short_escapes;
  for (const char letter : std::string("\"\\/bfnrt"))
    short_escapes.set(static_cast<size_t>(letter));
  const Symbol digit16 = builder_.Bytes(hex);
  // Not D: "\uD8.." would need a partner.
  ByteSet lead = hex;
  lead.reset('d');
  lead.reset('D');
  const Symbol tail = range(0x80, 0xBF);
  character_ = builder_.AnyOf(
      {{plain_key_letter_},
       {builder_.Byte('\\'), builder_.Bytes(short_escapes)},
       {builder_.Byte('\\'), builder_.Byte('u'), builder_.Bytes(lead), digit16, digit16, digit16},
       {range(0xC2, 0xDF), tail},
       {builder_.Byte('\xE0'), range(0xA0, 0xBF), tail},
       {range(0xE1, 0xEC), tail, tail},
       {builder_.Byte('\xED'), range(0x80, 0x9F), tail},
       {range(0xEE, 0xEF), tail, tail},
       {builder_.Byte('\xF0'), range(0x90, 0xBF), tail, tail},
       {range(0xF1, 0xF3), tail, tail, tail},
       {builder_.Byte('\xF4'), range(0x80, 0x8F), tail, tail}});
  string_ = string_of(0, -1);
}

void JsonGrammarParts::MakeNumbers() {
  const Symbol minus = builder_.AnyOf({{}, {builder_.Byte('-')}});
  const Symbol natural =
      builder_.AnyOf({{builder_.Byte('0')}, {builder_.Range('1', '9'), digits(0, kMaxDigits - 1)}});
  integer_ = builder_.AnyOf({{minus, natural}});
  const Symbol fraction = builder_.AnyOf({{}, {builder_.Byte('.'), digits(1, kMaxDigits)}});
  ByteSet e;
  e.set('e');
  e.set('E');
  ByteSet signs;
  signs.set('+');
  signs.set('-');
  const Symbol sign = builder_.AnyOf({{}, {builder_.Bytes(signs)}});
  const Symbol exponent = builder_.AnyOf({{}, {builder_.Bytes(e), sign, digits(1, 2)}});
  number_ = builder_.AnyOf({{minus, natural, fraction, exponent}});
}

void JsonGrammarParts::MakeValues() {
  const uint32_t value = builder_.NewRule();
  value_ = GrammarBuilder::Rule(value);
  array_ = builder_.AnyOf({list('[', ']', {value_}, 0, -1)});
  object_ = builder_.AnyOf({list('{', '}', {string_, builder_.Byte(':'), space_, value_}, 0, -1)});
  for (const Symbol& symbol : {string_, number_, object_, array_}) {
    builder_.AddAlternative(value, {symbol});
  }
  for (const char* word : {"true", "false", "null"}) {
    builder_.AddAlternative(value, builder_.Literal(word));
  }
}

JsonGrammarParts::Symbol JsonGrammarParts::digits(int64_t min, int64_t max) {
  return builder_.Repeat({builder_.Range('0', '9')}, min, max);
}

JsonGrammarParts::Symbol JsonGrammarParts::string_of(int64_t min, int64_t max) {
  const Symbol quote = builder_.Byte('"');
  return builder_.AnyOf({{quote, builder_.Repeat({character_}, min, max), quote}});
}

JsonGrammarParts::Sequence JsonGrammarParts::list(char open, char close, const Sequence& item,
                                                  int64_t min, int64_t max) {
  Sequence more = {builder_.Byte(','), space_};
  more.insert(more.end(), item.begin(), item.end());
  Sequence first = item;
  if (max != 0)
    first.push_back(builder_.Repeat(more, std::max<int64_t>(min - 1, 0), max < 0 ? -1 : max - 1));
  first.push_back(space_);
  std::vector<Sequence> contents;
  if (min == 0) contents.push_back({});
  if (max != 0) contents.push_back(first);
  return {builder_.Byte(open), space_, builder_.AnyOf(contents), builder_.Byte(close)};
}

JsonGrammarParts::Symbol JsonGrammarParts::key_suffix(const std::set<std::string>& names,
                                                      const std::string& prefix) {
  ByteSet free = builder_.SetOf(plain_key_letter_);
  const uint32_t rule = builder_.NewRule();
  std::set<char> continued;
  for (const std::string& name : names) {
    if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0) {
      continued.insert(name[prefix.size()]);
    }
  }
  for (const char letter : continued) {
    const auto byte = static_cast<unsigned char>(letter);
    if (!free.test(byte)) continue;  // such a name is written with escapes, which keys do not have
    free.reset(byte);
    builder_.AddAlternative(rule, {builder_.Byte(letter), key_suffix(names, prefix + letter)});
  }
  builder_.AddAlternative(rule,
                          {builder_.Bytes(free), builder_.Repeat({plain_key_letter_}, 0, -1)});
  if (names.count(prefix) == 0) builder_.AddAlternative(rule, {});
  return GrammarBuilder::Rule(rule);
}

JsonGrammarParts::Symbol JsonGrammarParts::other_key(const std::set<std::string>& names) {
  const Symbol quote = builder_.Byte('"');
  return builder_.AnyOf({{quote, key_suffix(names, ""), quote}});
}

}  // namespace hearth
