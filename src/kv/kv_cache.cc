#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "kv/kv_row_writer.h"

namespace hearth {

namespace {

// Pages of a sequence that come back into memory before one pass: reading them takes time.
constexpr int64_t kMostBroughtBack = 2;

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

int64_t FramesFor(const KvLayout& layout, int64_t max_tokens, const KvFlash* flash) {
  PoolBytes(layout, max_tokens);
  const int64_t pages = KvLayout::PagesFor(max_tokens);
  return flash == nullptr ? pages : pages + 1 - flash->num_slots();
}

}  // namespace

KvPool::KvPool(Budget& budget, const KvLayout& layout, int64_t max_tokens,
               std::unique_ptr<KvFlash> flash)
    : layout_(layout),
      flash_(std::move(flash)),
      frames_(budget, layout.page_bytes(), FramesFor(layout, max_tokens, flash_.get())),
      uses_(KvLayout::PagesFor(max_tokens)) {
  MakeTables(max_tokens);
}

KvPool::KvPool(const KvLayout& layout, int64_t max_tokens, LentKvMemory memory,
               std::unique_ptr<KvFlash> flash)
    : layout_(layout),
      flash_(std::move(flash)),
      frames_(std::move(memory), layout.page_bytes(), FramesFor(layout, max_tokens, flash_.get())),
      uses_(KvLayout::PagesFor(max_tokens)) {
  MakeTables(max_tokens);
}

void KvPool::MakeTables(int64_t max_tokens) {
  const auto pages = static_cast<size_t>(KvLayout::PagesFor(max_tokens));
  references_.assign(pages, 0);
  homes_.resize(pages);
  page_of_frame_.assign(static_cast<size_t>(frames_.count()), kNoKvPage);
  free_.reserve(pages);
  for (size_t i = pages; i > 0; --i) free_.push_back(static_cast<KvPageId>(i - 1));
}

uint64_t KvPool::ChargedBytes(const KvLayout& layout, int64_t max_tokens) {
  return Buffer::ChargedBytes(PoolBytes(layout, max_tokens));
}

void KvPool::Move(KvPageId page, Home to) noexcept {
  Home& home = homes_[static_cast<size_t>(page)];
  if (home.frame >= 0) page_of_frame_[static_cast<size_t>(home.frame)] = kNoKvPage;
  if (to.frame >= 0) page_of_frame_[static_cast<size_t>(to.frame)] = page;
  home = to;
  if (flash_) ++moves_;
}

int32_t KvPool::TakeFrame() {
  if (frames_.available() > 0) return frames_.Take();
  const KvPageId coldest = flash_ ? uses_.Coldest(page_of_frame_) : kNoKvPage;
  if (coldest != kNoKvPage) return Spill(coldest);
  throw Error(ErrorCode::kOutOfBudget, "kv cache",
              "all " + std::to_string(frames_.count()) + " pages in memory are in use");
}

// Returns the frame that the page leaves.
int32_t KvPool::Spill(KvPageId page) {
  const std::lock_guard lock(mutex_);
  const int32_t frame = homes_[static_cast<size_t>(page)].frame;
  const int32_t slot = flash_->TakeSlot();
  try {
    flash_->Write(slot, 0, {frames_.At(frame), layout_.page_bytes()});
  } catch (...) {
    flash_->DropSlot(slot);
    throw;
  }
  Move(page, {.slot = slot});
  return frame;
}

void KvPool::BringBack(KvPageId page) {
  const int32_t frame = TakeFrame();
  const std::lock_guard lock(mutex_);
  const int32_t slot = homes_[static_cast<size_t>(page)].slot;
  try {
    flash_->Read(slot, 0, {frames_.At(frame), layout_.page_bytes()});
  } catch (...) {
    frames_.GiveBack(frame);
    throw;
  }
  flash_->DropSlot(slot);
  Move(page, {.frame = frame});
}

void KvPool::Use(std::span<const KvSequence* const> sequences) noexcept {
  if (!flash_) return;
  for (const KvSequence* sequence : sequences) {
    for (const KvPageId page : sequence->page_ids()) uses_.Used(page);
  }
  try {
    for (const KvSequence* sequence : sequences) BringBackSome(*sequence);
  } catch (const Error&) {
    // The page stays where it is; whoever needs it hears of the disk.
  }
}

// The newest first, as the oldest would leave memory first.
void KvPool::BringBackSome(const KvSequence& sequence) {
  int64_t left = std::min(kMostBroughtBack, flash_->used_slots());
  for (size_t i = sequence.page_ids().size(); i > 0 && left > 0; --i) {
    const KvPageId page = sequence.page_ids()[i - 1];
    if (PlaceOf(page).data != nullptr) continue;
    const KvPageId coldest = uses_.Coldest(page_of_frame_);
    const bool has_cold = coldest != kNoKvPage && uses_.IsCold(coldest);
    // A frame stays free for what is written next.
    if (frames_.available() <= 1 && !has_cold) return;
    BringBack(page);
    --left;
  }
}

KvPageId KvPool::Allocate(bool in_memory) {
  if (free_.empty()) {
    throw Error(ErrorCode::kOutOfBudget, "kv cache",
                "all " + std::to_string(num_pages()) + " pages are in use");
  }
  Home home;
  if (in_memory) {
    home.frame = TakeFrame();
  } else {
    const std::lock_guard lock(mutex_);
    home.slot = flash_->TakeSlot();
  }
  const KvPageId page = free_.back();
  free_.pop_back();
  ReferencesTo(page) = 1;
  Move(page, home);
  uses_.Born(page);
  return page;
}

void KvPool::DropReference(KvPageId page) noexcept {
  if (--ReferencesTo(page) > 0) return;
  const std::unique_lock lock = flash_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  const Home home = homes_[static_cast<size_t>(page)];
  Move(page, {});
  if (home.frame >= 0) frames_.GiveBack(home.frame);
  if (home.slot >= 0) flash_->DropSlot(home.slot);
  free_.push_back(page);  // reserved for all pages
}

void KvPool::CopyOut(KvPageId page, uint64_t offset, std::span<std::byte> out) {
  const std::unique_lock lock = flash_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  const KvPlace place = PlaceOf(page);
  if (place.data == nullptr) return flash_->Read(place.slot, offset, out);
  std::memcpy(out.data(), place.data + offset, out.size());
}

void KvPool::CopyIn(KvPageId page, uint64_t offset, std::span<const std::byte> bytes) {
  const std::unique_lock lock = flash_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  const KvPlace place = PlaceOf(page);
  if (place.data == nullptr) return flash_->Write(place.slot, offset, bytes);
  std::memcpy(place.data + offset, bytes.data(), bytes.size());
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      length_(std::exchange(other.length_, 0)),
      page_ids_(std::exchange(other.page_ids_, {})),
      page_data_(std::exchange(other.page_data_, {})),
      seen_moves_(other.seen_moves_) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    Truncate(0);
    pool_ = other.pool_;
    length_ = std::exchange(other.length_, 0);
    page_ids_ = std::exchange(other.page_ids_, {});
    page_data_ = std::exchange(other.page_data_, {});
    seen_moves_ = other.seen_moves_;
  }
  return *this;
}

void KvSequence::PushPage(KvPageId page) {
  page_ids_.push_back(page);
  page_data_.push_back(pool_->PlaceOf(page).data);
}

std::span<std::byte* const> KvSequence::pages() const {
  if (seen_moves_ != pool_->moves_) {
    for (size_t i = 0; i < page_ids_.size(); ++i) {
      page_data_[i] = pool_->PlaceOf(page_ids_[i]).data;
    }
    seen_moves_ = pool_->moves_;
  }
  return page_data_;
}

bool KvSequence::MustCopyLast() const {
  return length_ % KvLayout::kPageTokens != 0 && pool_->ReferencesTo(page_ids_.back()) > 1;
}

int64_t KvSequence::PagesToAppend(int64_t count) const {
  if (count == 0) return 0;
  return KvLayout::PagesFor(length_ + count) - num_pages() + (MustCopyLast() ? 1 : 0);
}

void KvSequence::CheckRoom(int64_t count) const {
  const int64_t needed = PagesToAppend(count);
  if (needed <= pool_->free_pages()) return;
  throw Error(ErrorCode::kOutOfBudget, "kv cache",
              "no room for " + std::to_string(count) + " more tokens",
              std::to_string(needed) + " free pages", std::to_string(pool_->free_pages()));
}

// The last page, which has room, is this sequence's own and in memory.
void KvSequence::MakeLastWritable() {
  const KvPageId last = page_ids_.back();
  if (pool_->ReferencesTo(last) > 1) {
    const KvPageId copy = pool_->Allocate(true);
    try {
      const std::span<std::byte> bytes(pool_->PlaceOf(copy).data, layout().page_bytes());
      pool_->CopyOut(last, 0, bytes);  // which may just have left memory
    } catch (...) {
      pool_->DropReference(copy);
      throw;
    }
    pool_->DropReference(last);
    page_ids_.back() = copy;
    page_data_.back() = pool_->PlaceOf(copy).data;
  } else if (pool_->PlaceOf(last).data == nullptr) {
    pool_->BringBack(last);
  }
}

// Takes pages for `count` more tokens after the last page, which is writable. Where that fails,
// none are taken.
void KvSequence::TakePages(int64_t count) {
  const size_t before = page_ids_.size();
  const int64_t wanted = KvLayout::PagesFor(length_ + count);
  try {
    while (num_pages() < wanted) {
      PushPage(pool_->Allocate(true));
      pool_->uses_.Written(page_ids_.back(),
                           num_pages() * KvLayout::kPageTokens <= length_ + count);
    }
  } catch (...) {
    while (page_ids_.size() > before) {
      pool_->DropReference(page_ids_.back());
      page_ids_.pop_back();
      page_data_.pop_back();
    }
    throw;
  }
}

void KvSequence::Append(int64_t count) {
  CheckRoom(count);
  if (count == 0) return;
  try {
    if (!pool_->flash_) pool_->frames_.Reserve(PagesToAppend(count));
    if (length_ % KvLayout::kPageTokens != 0) {
      MakeLastWritable();
      pool_->uses_.Written(page_ids_.back(),
                           num_pages() * KvLayout::kPageTokens <= length_ + count);
    }
    TakePages(count);
  } catch (const Error&) {
    pool_->NoteFailed(this);
    throw;
  }
  length_ += count;
}

void KvSequence::AppendSaved(int64_t count) {
  CheckRoom(count);
  if (!pool_->flash_) return Append(count);
  const int64_t pages = KvLayout::PagesFor(count);
  const int64_t in_memory = std::min(pages, pool_->frames_.available());
  // The newest in memory: the oldest would leave it first.
  try {
    for (int64_t i = 0; i < pages; ++i) {
      PushPage(pool_->Allocate(i >= pages - in_memory));
      pool_->uses_.Written(page_ids_.back(), (i + 1) * KvLayout::kPageTokens <= count);
    }
  } catch (const Error&) {
    Truncate(0);
    throw;
  }
  length_ = count;
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
  for (const KvPageId page : page_ids_) {
    fork.PushPage(page);
    ++pool_->ReferencesTo(page);
  }
  fork.length_ = length_;
  fork.seen_moves_ = pool_->moves_;
  return fork;
}

void KvSequence::Store(int64_t layer, int64_t position, const float* keys, const float* values,
                       const kernels::KvEncoders& encoders) noexcept {
  const KvLayout& layout = pool_->layout();
  const KvRowWriter writer(layout, position % KvLayout::kPageTokens, encoders);
  const KvPageId id = page_ids_[static_cast<size_t>(position / KvLayout::kPageTokens)];
  std::byte* page = pool_->PlaceOf(id).data;
  writer.FetchKey(page + layout.KeysOffset(layer, 0));
  for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
    if (head + 1 < layout.num_kv_heads) writer.FetchKey(page + layout.KeysOffset(layer, head + 1));
    writer.WriteKey(keys + head * layout.head_dim, page + layout.KeysOffset(layer, head));
    writer.WriteValue(values + head * layout.head_dim, page + layout.ValuesOffset(layer, head));
  }
}

}  // namespace hearth
