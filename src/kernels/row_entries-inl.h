// Tokens that meet some rows of a batch (kernel_table.h, "entries"): in which order they are taken,
// and how rows are fetched meanwhile.
#pragma once

#include "kernels/rows-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Tokens in order of how many entries they have, so that the processor foresees how often it goes
// round: otherwise it starts anew with nearly every token. Those without entries are left out.
class TokensByCount {
 public:
  static constexpr int64_t kMost = 1024;

  // Tokens [first, last), at most kMost.
  HWY_INLINE TokensByCount(const int32_t* begin, int64_t first, int64_t last) {
    int32_t ends[kRowsOfBatch + 2] = {};
    for (int64_t t = first; t < last; ++t) ++ends[begin[t + 1] - begin[t] + 1];
    ends[1] = 0;  // of tokens with no entry
    for (int64_t n = 1; n <= kRowsOfBatch; ++n) ends[n + 1] += ends[n];
    size_ = ends[kRowsOfBatch + 1];
    for (int64_t t = first; t < last; ++t) {
      const int32_t count = begin[t + 1] - begin[t];
      if (count > 0) tokens_[ends[count]++] = static_cast<int32_t>(t);
    }
  }

  int64_t size() const { return size_; }
  int64_t token(int64_t i) const { return tokens_[i]; }
  // The one `ahead` further on, or the last.
  int64_t Ahead(int64_t i, int64_t ahead) const {
    return tokens_[i + ahead < size_ ? i + ahead : size_ - 1];
  }

 private:
  int64_t size_;
  int32_t tokens_[kMost];
};

// Fetches one group of the rows of a list little by little while something else is computed.
template <class Type>
class GroupFetcher {
 public:
  // All of it in `steps` calls of Step.
  HWY_INLINE GroupFetcher(const RowList& list, const GroupPlace& at, int64_t steps)
      : list_(list), at_(at), steps_(steps) {}

  HWY_INLINE void Step() {
    for (due_ += list_.count; due_ >= steps_ && row_ < list_.count; due_ -= steps_, ++row_) {
      const uint8_t* row = RowAt(list_, row_);
      for (int64_t line = 0; line < Type::kLines; ++line) {
        FetchFarAhead(row + at_.codes + line * at_.lanes * kRowLaneBytes);
      }
      FetchFarAhead(row + at_.scales);
      if constexpr (Type::kHasMinimum) FetchFarAhead(row + at_.minimums);
    }
  }

 private:
  const RowList& list_;
  GroupPlace at_;
  int64_t steps_;
  int64_t due_ = 0;
  int64_t row_ = 0;
};

}  // namespace hearth::kernels::HEARTH_ISA
