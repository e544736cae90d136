// Tokens that meet some rows of a batch (kernel_table.h, "entries"): in which order they are taken,
// and how rows are fetched meanwhile.
#pragma once

#include "kernels/simd/rows-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Tokens in order of how many entries they have, at most kMostEntries, so that the processor
// foresees how often it goes round: otherwise it starts anew with nearly every token. Those without
// entries are left out.
template <int64_t kMostEntries>
class TokensByCount {
 public:
  static constexpr int64_t kMost = 1024;

  // Tokens [first, last), at most kMost.
  HWY_INLINE TokensByCount(const int32_t* begin, int64_t first, int64_t last) {
    int32_t ends[kMostEntries + 2] = {};
    for (int64_t t = first; t < last; ++t) ++ends[begin[t + 1] - begin[t] + 1];
    ends[1] = 0;  // of tokens with no entry
    for (int64_t n = 1; n <= kMostEntries; ++n) ends[n + 1] += ends[n];
    size_ = ends[kMostEntries + 1];
    for (int64_t t = first; t < last; ++t) {
      const int32_t count = begin[t + 1] - begin[t];
      if (count > 0) tokens_[ends[count]++] = static_cast<int32_t>(t);
    }
  }

  int64_t size() const { return size_; }
  const int32_t* tokens() const { return tokens_; }

 private:
  int64_t size_;
  int32_t tokens_[kMost];
};

// Calls part(tokens, count) with all tokens that have entries, up to kMost at a time.
template <int64_t kMostEntries, class Part>
HWY_INLINE void ForTokensByCount(const int32_t* begin, int64_t tokens, Part part) {
  using Ordered = TokensByCount<kMostEntries>;
  for (int64_t first = 0; first < tokens; first += Ordered::kMost) {
    const int64_t left = tokens - first;
    const Ordered ordered(begin, first, first + (left < Ordered::kMost ? left : Ordered::kMost));
    if (ordered.size() > 0) part(ordered.tokens(), ordered.size());
  }
}

// Fetches one group of the rows of a list little by little while something else is computed.
template <class Type>
class GroupFetcher {
 public:
  // All of it while `passes` passes over so many tokens call Step for each.
  HWY_INLINE GroupFetcher(const RowList& list, const GroupPlace& at, int64_t tokens, int64_t passes)
      : list_(list), at_(at), steps_((tokens + kTokensOfStep - 1) / kTokensOfStep * passes) {}

  // With the i-th token of a pass.
  HWY_INLINE void Step(int64_t i) {
    if (i % kTokensOfStep == 0) Fetch();
  }

 private:
  static constexpr int64_t kTokensOfStep = 8;

  // Not inlined: what it needs would drive what each token needs out of the registers.
  HWY_NOINLINE void Fetch() {
    for (due_ += list_.count; due_ >= steps_ && row_ < list_.count; due_ -= steps_, ++row_) {
      const uint8_t* row = RowAt(list_, row_);
      for (int64_t line = 0; line < Type::kLines; ++line) {
        FetchAhead(row + at_.codes + line * at_.lanes * kRowLaneBytes);
      }
      FetchAhead(row + at_.scales);
      if constexpr (Type::kHasMinimum) FetchAhead(row + at_.minimums);
    }
  }

  const RowList& list_;
  GroupPlace at_;
  int64_t steps_;
  int64_t due_ = 0;
  int64_t row_ = 0;
};

}  // namespace hearth::kernels::HEARTH_ISA
