#include "engine/session/text_windows.h"

#include <algorithm>

namespace hearth {

TextWindows::TextWindows(std::span<const TokenId> text, TokenId bos, int64_t context)
    : text_(text), bos_(bos), extra_(bos >= 0 ? 1 : 0) {
  per_window_ = static_cast<uint64_t>(context) - extra_;
  windows_ = (text.size() + per_window_ - 1) / per_window_;
}

std::vector<TokenId> TextWindows::Window(uint64_t index) const {
  const uint64_t begin = index * per_window_;
  const auto piece =
      text_.subspan(static_cast<size_t>(begin),
                    static_cast<size_t>(std::min<uint64_t>(per_window_, text_.size() - begin)));
  std::vector<TokenId> window;
  window.reserve(piece.size() + 1);
  if (bos_ >= 0) window.push_back(bos_);
  window.insert(window.end(), piece.begin(), piece.end());
  return window;
}

std::vector<TokenId> SpreadSample(std::span<const TokenId> text, int64_t count, int64_t length) {
  const auto all = static_cast<int64_t>(text.size());
  if (all <= count) return {text.begin(), text.end()};
  const int64_t pieces = std::max<int64_t>(count / length, 1);
  std::vector<TokenId> chosen;
  for (int64_t i = 0; i < pieces; ++i) {
    const auto piece =
        text.subspan(static_cast<size_t>(i * all / pieces), static_cast<size_t>(count / pieces));
    chosen.insert(chosen.end(), piece.begin(), piece.end());
  }
  return chosen;
}

bool RunInChunks(TransformerPass& pass, KvSequence& kv, std::span<const TokenId> tokens,
                 ActivationSelector& selector, PassObserver* observer, const ChunkFn& after) {
  size_t count = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += count) {
    count = static_cast<size_t>(
        PassShape::ChunkOf(static_cast<int64_t>(tokens.size() - begin), pass.limits().max_tokens));
    const BatchSequence sequence{&kv, tokens.subspan(begin, count)};
    pass.Run({PassKind::kPrefill, {&sequence, 1}}, selector, observer);
    if (!after(begin, count)) return false;
  }
  return true;
}

}  // namespace hearth
