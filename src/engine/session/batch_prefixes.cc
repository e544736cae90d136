// Where prompts begin alike: what they share, and what is kept for those that will
// (engine/session/batch_scheduler.h).
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "engine/session/batch_request.h"

namespace hearth {
namespace {

// A save that keeps a pass waiting for pages longer than this is given up.
constexpr std::chrono::seconds kSavePatience{2};
// One part of the KV cache in so many is kept free, or can be without waiting for a disk.
constexpr int64_t kReadyShare = 4;

}  // namespace

// Pages that belong to running requests, or will if they generate all they may.
int64_t BatchScheduler::promised_pages() const {
  std::set<KvPageId> held;
  int64_t to_come = 0;
  for (const auto& request : running_) {
    const std::span<const KvPageId> pages = request->kv.page_ids();
    held.insert(pages.begin(), pages.end());
    to_come += request->pages_to_come();
  }
  return std::ssize(held) + to_come;
}

int64_t BatchScheduler::FreePages() const {
  return engine_.kv_pool().num_pages() - promised_pages();
}

// Takes pages from sequences that have ended: those that need no disk first.
void BatchScheduler::MakeRoom(int64_t pages) {
  const auto until = SessionKeeper::Clock::now() + kSavePatience;
  while (engine_.kv_pool().free_pages() < pages) {
    // What was let go has pages until it is saved.
    if (!prefixes_.is_oldest_settled() && sessions_ != nullptr && sessions_->WaitForSave(until)) {
      continue;
    }
    std::optional<PrefixCache::Entry> oldest = prefixes_.TakeOldest();
    if (oldest) {
      LetGo(std::move(oldest));
    } else if (sessions_ == nullptr || !sessions_->WaitForSave(until)) {
      return;
    }
  }
}

// A sequence leaves the cache: to disk, where it is not there.
void BatchScheduler::LetGo(std::optional<PrefixCache::Entry> entry) {
  if (!entry || sessions_ == nullptr || entry->is_settled) return;
  if (!sessions_->IsSaved(entry->text())) {
    sessions_->Save(entry->text(), std::move(entry->kv), entry->last_used);
  }
}

// Saves what will be let go next while there is time, so that no pass waits for its pages.
void BatchScheduler::SaveAhead() {
  sessions_->Collect();
  const KvPool& pool = engine_.kv_pool();
  const int64_t ready = pool.free_pages() + prefixes_.SettledPages();
  if (sessions_->is_saving() || ready >= pool.num_pages() / kReadyShare) return;
  PrefixCache::Entry* next = prefixes_.OldestUnsettled();
  if (next == nullptr) return;
  next->is_settled = true;
  if (!sessions_->IsSaved(next->text())) {
    sessions_->Save(next->text(), next->kv.Fork(), next->last_used);
  }
}

int64_t BatchScheduler::SaveSessions(std::chrono::steady_clock::time_point until) {
  while (std::optional<PrefixCache::Entry> newest = prefixes_.TakeNewest()) {
    LetGo(std::move(newest));
  }
  return sessions_ == nullptr ? 0 : sessions_->WaitForSaves(until);
}

// Whether a prompt that is about to be computed begins like this one: it will be there to share.
bool BatchScheduler::WaitsForPrefix(const Request& request, const Pass& pass) const {
  if (request.has_begun || request.needs_whole_prompt()) return false;
  const int64_t known = prefixes_.LongestCommon(request.text());
  for (const auto& other : running_) {
    if (other.get() == &request) return false;  // later ones wait for this one
    const bool is_in_prompt = !other->is_generating && (other->has_begun || other->restore);
    if (!is_in_prompt && std::find(pass.begin(), pass.end(), other.get()) == pass.end()) continue;
    const int64_t common = CommonPrefix(other->text(), request.text());
    if (common >= known + KvLayout::kPageTokens) return true;
  }
  return false;
}

// What of a prompt need not be computed where it is in the KV cache.
CachedText BatchScheduler::Sharable(const Request& request) const {
  // Of single neurons a few tokens are computed in another way than those of a prompt: enough are
  // left that repeating a request gives the same bits.
  const int64_t fewest = engine_.pass().limits().ffn_of_neurons ? PassShape::kPrefillTokens : 1;
  const auto prompt = std::span<const TokenId>(request.history);
  const bool has_none = request.needs_whole_prompt() || std::ssize(prompt) <= fewest;
  return {prompt.first(has_none ? 0 : prompt.size() - static_cast<size_t>(fewest)),
          request.asked.adapters.key()};
}

// The longest beginning that is in memory; and where, null where it is in prefixes_.
const KvSequence* BatchScheduler::FindShared(const Request& request, int64_t* longest) const {
  const CachedText sharable = Sharable(request);
  const KvSequence* best = nullptr;
  *longest = prefixes_.LongestCommon(sharable);
  for (const auto& other : running_) {
    if (other.get() == &request) continue;
    const int64_t common = CommonPrefix(other->cached(), sharable);
    if (common <= *longest) continue;
    *longest = common;
    best = &other->kv;
  }
  const KvSequence* saving = nullptr;
  if (sessions_ != nullptr) saving = sessions_->FindSaving(sharable, longest);
  return saving != nullptr ? saving : best;
}

// Lets a prompt that has not begun start from the longest beginning that is in the KV cache, or was
// saved.
void BatchScheduler::SharePrefix(Request& request) {
  int64_t longest = 0;
  const KvSequence* best = FindShared(request, &longest);
  if (request.restore) {
    request.kv = std::exchange(request.restore, nullptr)->Take();
    if (request.kv.length() <= longest) request.kv.Truncate(0);
  }
  if (longest > 0 && request.kv.length() == 0) {
    request.kv = best != nullptr ? best->Fork() : std::move(*prefixes_.Fork(Sharable(request)));
    request.kv.Truncate(longest);
    // To go on from the middle of a shared page takes a copy of it; where that was not promised,
    // whole pages are shared.
    if (FreePages() < 0) {
      request.kv.Truncate(longest / KvLayout::kPageTokens * KvLayout::kPageTokens);
    }
  }
  request.outcome.reused_tokens = request.kv.length();
  counts_.reused_tokens += request.kv.length();
}

// Whether saved pages of a prompt that has not begun are on their way.
bool BatchScheduler::IsRestoring(Request& request) {
  if (sessions_ == nullptr || request.has_begun) return false;
  if (!std::exchange(request.has_looked, true)) StartRestore(request);
  return request.restore && !request.restore->is_done();
}

// Where a file has a page more of a prompt than memory: less is not worth the wait. The pages are
// of those that it was promised.
void BatchScheduler::StartRestore(Request& request) {
  const CachedText sharable = Sharable(request);
  int64_t in_memory = 0;
  FindShared(request, &in_memory);
  const int64_t saved = sessions_->LongestCommon(sharable);
  if (saved < in_memory + KvLayout::kPageTokens) return;
  KvSequence kv(engine_.kv_pool());
  MakeRoom(kv.PagesToAppend(saved));
  if (kv.PagesToAppend(saved) > engine_.kv_pool().free_pages()) return;
  kv.AppendSaved(saved);
  request.restore = sessions_->Restore(sharable, std::move(kv));
}

}  // namespace hearth
