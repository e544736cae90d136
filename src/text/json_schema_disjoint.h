// Which schemas of "oneOf" exclude each other.
#pragma once

#include "text/json_schema_parts.h"

namespace hearth {

// Throws Error(kUnsupported) where a document may be of two of these schemas (a list), unless their
// types, their values, or values of properties that both require say that none can be. Takes time
// about linear in their number where one property tells all objects apart; too many others are
// refused.
void CheckDisjoint(const SchemaJson& schemas);

}  // namespace hearth
