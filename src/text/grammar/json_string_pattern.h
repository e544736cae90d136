// JSON strings that match a regular expression, or have a known format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar_parts.h"

namespace hearth {

// A rule for JSON strings (with their quotes) of which some part matches the pattern, as "pattern"
// of JSON Schema means it. Knows of ECMA-262: characters, ".", escapes of characters, \d \w \s \D
// \W \S, classes, groups without or with a name, "|", * + ? {n} {n,} {n,m} (also lazy, which
// matches the same), "^" and "$" at the ends of the whole or of one of its alternatives, and
// "(?=" and "(?!" after "^". Classes that exclude, and ".", take no control characters here. Throws
// Error(kUnsupported) that names anything else, Error(kInvalidArgument) for what is not a pattern.
Grammar::Symbol StringOfPattern(GrammarBuilder& builder, JsonGrammarParts& parts,
                                std::string_view pattern);

// How many characters the texts that match have; most -1: without bound.
struct PatternLengths {
  int64_t least = 0, most = 0;
};
PatternLengths LengthsOfPattern(std::string_view pattern);

// A pattern for "format", each in a plain form: date, time, date-time, duration (as RFC 3339 has
// them), email, hostname, ipv4, ipv6, uuid, uri and its kin, regex, json-pointer and its kin, and
// color. Empty for others, which are annotations.
std::string PatternOfFormat(std::string_view format);

}  // namespace hearth
