#include "pipeline/extents/extent_batch.h"

#include <algorithm>

namespace hearth {

size_t ExtentBatch::IndexOfOffset(int32_t offset) const {
  return static_cast<size_t>(std::lower_bound(offsets_.begin(), offsets_.end(), offset) -
                             offsets_.begin());
}

int64_t ExtentBatch::LookUp(int64_t layer, std::span<const int32_t> experts) {
  layer_ = layer;
  offsets_.clear();
  for (const int32_t expert : experts) {
    const int32_t first = map_->FirstOf(layer, expert, FfnMatrix::kGate);
    for (int64_t i = 0; i < map_->CountOfFfn(layer); ++i) {
      offsets_.push_back(first + static_cast<int32_t>(i));
    }
  }
  entries_.resize(offsets_.size());
  loaded_.assign(offsets_.size(), false);
  return cache_->Lookup({map_->FirstKey(layer), offsets_}, entries_);
}

void ExtentBatch::PutPresentFirst(std::span<int32_t> experts) {
  missing_experts_.clear();
  size_t present = 0;
  for (const int32_t expert : experts) {
    const size_t first = IndexOfOffset(map_->FirstOf(layer_, expert, FfnMatrix::kGate));
    const auto entries =
        std::span(entries_).subspan(first, static_cast<size_t>(map_->CountOfFfn(layer_)));
    const bool is_here = std::all_of(entries.begin(), entries.end(), [](const CacheEntry& entry) {
      return entry.found == CacheFound::kHit;
    });
    if (is_here) {
      experts[present++] = expert;
    } else {
      missing_experts_.push_back(expert);
    }
  }
  std::copy(missing_experts_.begin(), missing_experts_.end(),
            experts.begin() + static_cast<int64_t>(present));
}

void ExtentBatch::AskForMissing(ExtentReader& reader, std::span<const int32_t> experts) const {
  for (const int32_t expert : experts) {
    size_t i = IndexOfOffset(map_->FirstOf(layer_, expert, FfnMatrix::kGate));
    const size_t end = i + static_cast<size_t>(map_->CountOfFfn(layer_));
    for (; i < end; ++i) {
      if (!is_here(i)) reader.Ask(KeyOf(i));
    }
  }
}

std::pair<size_t, size_t> ExtentBatch::EntriesOf(int64_t expert, FfnMatrix which) const {
  const size_t begin = IndexOfOffset(map_->FirstOf(layer_, expert, which));
  return {begin, begin + static_cast<size_t>(map_->CountOf(layer_, which))};
}

void ExtentBatch::SetLoaded(size_t index) {
  cache_->Loaded(KeyOf(index));
  loaded_[index] = true;
}

void ExtentBatch::Release() noexcept {
  if (is_empty()) return;
  cache_->Release({map_->FirstKey(layer_), offsets_}, entries_);
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (entries_[i].found == CacheFound::kMiss && !loaded_[i]) cache_->Failed(KeyOf(i));
  }
  layer_ = -1;
}

}  // namespace hearth
