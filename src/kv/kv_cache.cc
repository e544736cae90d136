#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/error.h"
#include "kv/kv_row_writer.h"

namespace hearth {

namespace {

// Sizes come from model files: the product is checked.
size_t PoolBytes(const KvLayout& layout, int64_t max_tokens) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(layout.page_bytes(),
                             static_cast<size_t>(KvLayout::PagesFor(max_tokens)), &bytes) ||
      bytes > (size_t{1} << 46)) {
    throw Error(ErrorCode::kInvalidArgument, "kv cache",
                "a context of " + std::to_string(max_tokens) +
                    " tokens needs more memory than any machine has");
  }
  return bytes;
}

}  // namespace

KvPool::KvPool(Budget& budget, const KvLayout& layout, int64_t max_tokens)
    : layout_(layout),
      own_memory_(budget, "kv cache", PoolBytes(layout, max_tokens)),
      pages_(own_memory_.data()) {
  MakeTables(max_tokens);
}

KvPool::KvPool(const KvLayout& layout, int64_t max_tokens, LentKvMemory memory)
    : layout_(layout), lent_memory_(std::move(memory)), pages_(lent_memory_.pages) {
  PoolBytes(layout, max_tokens);
  MakeTables(max_tokens);
  lent_.reserve(free_.capacity());
  lent_.swap(free_);
}

void KvPool::MakeTables(int64_t max_tokens) {
  const auto pages = static_cast<size_t>(KvLayout::PagesFor(max_tokens));
  references_.assign(pages, 0);
  free_.reserve(pages);
  for (size_t i = pages; i > 0; --i) free_.push_back(static_cast<PageId>(i - 1));
}

uint64_t KvPool::ChargedBytes(const KvLayout& layout, int64_t max_tokens) {
  return Buffer::ChargedBytes(PoolBytes(layout, max_tokens));
}

void KvPool::Reserve(int64_t count) {
  try {
    while (std::ssize(free_) < count && !lent_.empty()) {
      const PageId page = lent_.back();
      lent_memory_.take(page);
      // Kernels may load values that no token has written; they must be numbers.
      std::memset(PageData(page), 0, layout_.page_bytes());
      lent_.pop_back();
      free_.push_back(page);
    }
  } catch (...) {
    LendFree();
    throw;
  }
}

KvPool::PageId KvPool::Allocate() {
  if (free_.empty()) {
    throw Error(ErrorCode::kOutOfBudget, "kv cache",
                "all " + std::to_string(num_pages()) + " pages are in use");
  }
  const PageId page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPool::DropReference(PageId page) noexcept {
  if (--references_[static_cast<size_t>(page)] > 0) return;
  // free_ and lent_ were reserved for all pages, so that neither can throw.
  free_.push_back(page);
  if (own_memory_.size_bytes() == 0) LendFree();
}

// Lends the highest pages first, so that pages in use stay together.
void KvPool::LendFree() noexcept {
  while (free_.size() > kKeptPages) {
    const auto highest = std::max_element(free_.begin(), free_.end());
    const PageId page = *highest;
    free_.erase(highest);
    lent_memory_.give_back(page);
    lent_.insert(std::upper_bound(lent_.begin(), lent_.end(), page, std::greater<>()), page);
  }
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      length_(std::exchange(other.length_, 0)),
      page_ids_(std::move(other.page_ids_)),
      page_data_(std::move(other.page_data_)) {
  other.page_ids_.clear();
  other.page_data_.clear();
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    Truncate(0);
    pool_ = other.pool_;
    length_ = std::exchange(other.length_, 0);
    page_ids_ = std::exchange(other.page_ids_, {});
    page_data_ = std::exchange(other.page_data_, {});
  }
  return *this;
}

void KvSequence::PushPage(KvPool::PageId page) {
  page_ids_.push_back(page);
  page_data_.push_back(pool_->PageData(page));
}

bool KvSequence::MustCopyLast() const {
  return length_ % KvLayout::kPageTokens != 0 && pool_->IsShared(page_ids_.back());
}

int64_t KvSequence::PagesToAppend(int64_t count) const {
  if (count == 0) return 0;
  return KvLayout::PagesFor(length_ + count) - std::ssize(page_ids_) + (MustCopyLast() ? 1 : 0);
}

void KvSequence::Append(int64_t count) {
  const int64_t needed = PagesToAppend(count);
  if (needed > pool_->free_pages()) {
    throw Error(ErrorCode::kOutOfBudget, "kv cache",
                "no room for " + std::to_string(count) + " more tokens",
                std::to_string(needed) + " free pages", std::to_string(pool_->free_pages()));
  }
  pool_->Reserve(needed);
  const int64_t new_pages =
      KvLayout::PagesFor(length_ + count) - static_cast<int64_t>(page_ids_.size());
  if (count > 0 && MustCopyLast()) {
    const KvPool::PageId copy = pool_->Allocate();
    std::memcpy(pool_->PageData(copy), page_data_.back(), pool_->layout().page_bytes());
    pool_->DropReference(page_ids_.back());
    page_ids_.back() = copy;
    page_data_.back() = pool_->PageData(copy);
  }
  for (int64_t i = 0; i < new_pages; ++i) PushPage(pool_->Allocate());
  length_ += count;
}

void KvSequence::Truncate(int64_t new_length) noexcept {
  const auto keep = static_cast<size_t>(KvLayout::PagesFor(new_length));
  while (page_ids_.size() > keep) {
    pool_->DropReference(page_ids_.back());
    page_ids_.pop_back();
    page_data_.pop_back();
  }
  length_ = new_length;
}

KvSequence KvSequence::Fork() const {
  KvSequence fork(*pool_);
  for (const KvPool::PageId page : page_ids_) {
    fork.PushPage(page);
    pool_->AddReference(page);
  }
  fork.length_ = length_;
  return fork;
}

void KvSequence::Store(int64_t layer, int64_t position, const float* keys, const float* values,
                       const kernels::KvEncoders& encoders) noexcept {
  const KvLayout& layout = pool_->layout();
  const KvRowWriter writer(layout, position % KvLayout::kPageTokens, encoders);
  std::byte* page = page_data_[static_cast<size_t>(position / KvLayout::kPageTokens)];
  writer.FetchKey(page + layout.KeysOffset(layer, 0));
  for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
    if (head + 1 < layout.num_kv_heads) writer.FetchKey(page + layout.KeysOffset(layer, head + 1));
    writer.WriteKey(keys + head * layout.head_dim, page + layout.KeysOffset(layer, head));
    writer.WriteValue(values + head * layout.head_dim, page + layout.ValuesOffset(layer, head));
  }
}

}  // namespace hearth
