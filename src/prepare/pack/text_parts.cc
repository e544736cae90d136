#include "prepare/pack/text_parts.h"

#include <cstddef>

namespace hearth {
namespace {

constexpr size_t kLastPart = 5;  // one part in so many
// With fewer tokens a perplexity says more of those tokens than of the model.
constexpr size_t kFewestLast = 32;

}  // namespace

TextParts SplitText(std::span<const TokenId> text) {
  const size_t last = text.size() / kLastPart;
  if (last < kFewestLast) return {text, text};
  return {text.first(text.size() - last), text.last(last)};
}

}  // namespace hearth
