// A text as a model reads it from start to end: in windows of its context, each a sequence of its
// own, each in chunks of a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "pass/transformer_pass.h"
#include "sparsity/selector.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Cuts a text (without BOS) into windows of `context` tokens that do not overlap: BOS, where the
// model has one, and context - 1 tokens of the text; the last one may be shorter. An empty text
// has no window.
class TextWindows {
 public:
  // bos: negative where there is none. context is at least 1, with BOS 2.
  TextWindows(std::span<const TokenId> text, TokenId bos, int64_t context);

  uint64_t size() const { return windows_; }
  // Tokens of all windows, BOS included.
  uint64_t total_tokens() const { return text_.size() + windows_ * extra_; }
  std::vector<TokenId> Window(uint64_t index) const;

 private:
  std::span<const TokenId> text_;
  TokenId bos_;
  uint64_t extra_;       // tokens that a window has beside the text's
  uint64_t per_window_;  // tokens of the text in a full window
  uint64_t windows_;
};

// At most `count` tokens of a text, in pieces of about `length` that are spread evenly over it.
std::vector<TokenId> SpreadSample(std::span<const TokenId> text, int64_t count, int64_t length);

// Called after each chunk with the index of its first token and their number; false stops.
using ChunkFn = std::function<bool(size_t begin, size_t count)>;

// Runs `tokens` after what `kv` holds, as many at a time as a batch takes. False where `after`
// stopped it. Throws what TransformerPass::Run throws.
bool RunInChunks(TransformerPass& pass, KvSequence& kv, std::span<const TokenId> tokens,
                 ActivationSelector& selector, PassObserver* observer, const ChunkFn& after);

}  // namespace hearth
