// JSON strings that match a regular expression, or have a known format.
#pragma once

#include <string_view>

#include "text/grammar.h"
#include "text/json_grammar_parts.h"

namespace hearth {

// A rule for JSON strings (with their quotes) of which some part matches the pattern, as "pattern"
// of JSON Schema means it. Knows of ECMA-262: characters, ".", escapes of characters, \d \w \s \D
// \W \S, classes, groups without or with a name, "|", * + ? {n} {n,} {n,m} (also lazy, which
// matches the same), and "^" and "$" at the ends of the whole or of one of its alternatives.
// Classes that exclude, and ".", take no control characters here. Throws Error(kUnsupported) that
// names anything else, Error(kInvalidArgument) for what is no pattern.
Grammar::Symbol StringOfPattern(GrammarBuilder& builder, JsonGrammarParts& parts,
                                std::string_view pattern);

// The same for "format": date, time, date-time, duration (as RFC 3339 has them), email, hostname,
// ipv4, ipv6 and uuid, each in a plain form. Error(kUnsupported) for others.
Grammar::Symbol StringOfFormat(GrammarBuilder& builder, JsonGrammarParts& parts,
                               std::string_view format);

}  // namespace hearth
