// Passes as their users ask for them; for tests.
#pragma once

#include "pass/pass_shape.h"

namespace hearth {

// A token of its own is decoded, more of them are a prompt's. The sequence must outlive the shape.
inline PassShape ShapeOf(const BatchSequence& sequence) {
  return {sequence.tokens.size() == 1 ? PassKind::kDecode : PassKind::kPrefill, {&sequence, 1}};
}

}  // namespace hearth
