// The merging loop that both kinds of BPE share: while two neighbours may merge, merge the pair
// that comes first in priority, of equals the leftmost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Longer pieces are cut before merging, to bound the memory of one call (some 40 bytes per byte).
inline constexpr size_t kMaxPieceBytes = size_t{1} << 24;

// A run of bytes of the piece at hand. id < 0: no token (a byte or character without one).
struct Symbol {
  uint32_t begin = 0;
  uint32_t length = 0;
  TokenId id = -1;
};

// What two neighbours become. Smaller priorities go first.
struct Merge {
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t priority = kNever;
  TokenId id = -1;
};

// Memory reused from piece to piece; belongs to one thread.
struct MergeScratch {
  struct Candidate {
    Merge merge;
    uint32_t at;            // index of the left symbol
    uint32_t left_length;   // of both when the candidate was found: symbols only grow, so that
    uint32_t right_length;  // equal lengths mean the same pair
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> pairs;
  std::vector<Candidate> heap;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
};

namespace merge_internal {

// Quadratic, but without a heap: faster for words, which is what most pieces are.
template <typename FindMerge>
void MergeShort(const FindMerge& find, std::vector<Symbol>& symbols, std::vector<Merge>& pairs) {
  pairs.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    pairs.push_back(find(symbols[i], symbols[i + 1]));
  }
  while (!pairs.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].priority < pairs[best].priority) best = i;
    }
    if (pairs[best].priority == Merge::kNever) return;
    symbols[best].length += symbols[best + 1].length;
    symbols[best].id = pairs[best].id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best < pairs.size()) pairs[best] = find(symbols[best], symbols[best + 1]);
  }
}

// A heap of candidates over a linked list of symbols: n log n.
template <typename FindMerge>
class LongMerger {
 public:
  LongMerger(const FindMerge& find, MergeScratch* scratch)
      : find_(find),
        symbols_(scratch->symbols),
        heap_(scratch->heap),
        previous_(scratch->previous),
        next_(scratch->next),
        size_(static_cast<uint32_t>(scratch->symbols.size())) {}

  void Run() {
    Start();
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), GoesLater);
      const MergeScratch::Candidate candidate = heap_.back();
      heap_.pop_back();
      if (StillStands(candidate)) Apply(candidate);
    }
    Compact();
  }

 private:
  static bool GoesLater(const MergeScratch::Candidate& a, const MergeScratch::Candidate& b) {
    return a.merge.priority != b.merge.priority ? a.merge.priority > b.merge.priority : a.at > b.at;
  }

  void Start() {
    heap_.clear();
    previous_.resize(size_);
    next_.resize(size_);
    for (uint32_t i = 0; i < size_; ++i) {
      previous_[i] = i == 0 ? size_ : i - 1;  // size_: none
      next_[i] = i + 1;
    }
    for (uint32_t i = 0; i + 1 < size_; ++i) AddCandidate(i);
    std::make_heap(heap_.begin(), heap_.end(), GoesLater);
  }

  bool AddCandidate(uint32_t at) {
    const Symbol& left = symbols_[at];
    const Symbol& right = symbols_[next_[at]];
    const Merge merge = find_(left, right);
    if (merge.priority == Merge::kNever) return false;
    heap_.push_back({merge, at, left.length, right.length});
    return true;
  }

  void AddAndSift(uint32_t at) {
    if (AddCandidate(at)) std::push_heap(heap_.begin(), heap_.end(), GoesLater);
  }

  // A symbol merged into its left neighbour has length 0 and never matches.
  bool StillStands(const MergeScratch::Candidate& candidate) const {
    return symbols_[candidate.at].length == candidate.left_length && next_[candidate.at] < size_ &&
           symbols_[next_[candidate.at]].length == candidate.right_length;
  }

  void Apply(const MergeScratch::Candidate& candidate) {
    const uint32_t left = candidate.at;
    const uint32_t right = next_[left];
    symbols_[left].length += symbols_[right].length;
    symbols_[left].id = candidate.merge.id;
    symbols_[right].length = 0;
    next_[left] = next_[right];
    if (next_[left] < size_) {
      previous_[next_[left]] = left;
      AddAndSift(left);
    }
    if (previous_[left] < size_) AddAndSift(previous_[left]);
  }

  void Compact() {
    const auto is_merged_away = [](const Symbol& symbol) { return symbol.length == 0; };
    symbols_.erase(std::remove_if(symbols_.begin(), symbols_.end(), is_merged_away),
                   symbols_.end());
  }

  const FindMerge& find_;
  std::vector<Symbol>& symbols_;
  std::vector<MergeScratch::Candidate>& heap_;
  std::vector<uint32_t>& previous_;
  std::vector<uint32_t>& next_;
  uint32_t size_;
};

}  // namespace merge_internal

// Up to this many symbols the loop without a heap is twice as fast (measured on 3 MB of prose with
// both kinds; anything from 16 to 64 is alike).
inline constexpr size_t kShortPieceSymbols = 32;

// Merges scratch->symbols in place. `find` maps two neighbouring symbols to a Merge.
template <typename FindMerge>
void MergeSymbols(const FindMerge& find, MergeScratch* scratch) {
  if (scratch->symbols.size() <= kShortPieceSymbols) {
    merge_internal::MergeShort(find, scratch->symbols, scratch->pairs);
  } else {
    merge_internal::LongMerger<FindMerge>(find, scratch).Run();
  }
}

}  // namespace hearth
