// How a text is shared out: what is learned from one part is tuned or judged on another, because on
// its own part everything looks better than it is.
#pragma once

#include <span>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct TextParts {
  std::span<const TokenId> first, last;

  // False: the text is too short to be shared out, and both are all of it.
  bool are_apart() const { return first.data() + first.size() == last.data(); }
};

// The last fifth of a text, and what comes before it. `pack` splits twice: the last fifth is for
// what it reports, and of the rest the last fifth is for tuning what the first part taught. The
// parts refer to `text`.
TextParts SplitText(std::span<const TokenId> text);

}  // namespace hearth
