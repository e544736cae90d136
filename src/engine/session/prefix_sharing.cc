#include "engine/session/prefix_sharing.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

namespace hearth {
namespace {

// A save that keeps a pass waiting for pages longer than this is given up.
constexpr std::chrono::seconds kSavePatience{2};
// One part of the KV cache in so many is kept free, or can be without waiting for a disk.
constexpr int64_t kReadyShare = 4;

}  // namespace

int64_t PrefixSharing::promised_pages() const {
  std::set<KvPageId> held;
  int64_t to_come = 0;
  for (const auto& request : running_) {
    const std::span<const KvPageId> pages = request->kv.page_ids();
    held.insert(pages.begin(), pages.end());
    to_come += request->pages_to_come();
  }
  return std::ssize(held) + to_come;
}

int64_t PrefixSharing::unpromised_pages() const {
  return engine_.kv_pool().num_pages() - promised_pages();
}

void PrefixSharing::MakeRoom(int64_t pages) {
  const auto until = SessionKeeper::Clock::now() + kSavePatience;
  while (engine_.kv_pool().free_pages() < pages) {
    // What was let go has pages until it is saved.
    if (!kept_.is_oldest_settled() && sessions_ != nullptr && sessions_->WaitForSave(until)) {
      continue;
    }
    std::optional<PrefixCache::Entry> oldest = kept_.TakeOldest();
    if (oldest) {
      LetGo(std::move(oldest));
    } else if (sessions_ == nullptr || !sessions_->WaitForSave(until)) {
      return;
    }
  }
}

void PrefixSharing::Keep(RunningRequest& request) {
  const CachedText cached = request.cached();  // before its sequence moves
  LetGo(kept_.Insert(cached, std::move(request.kv)));
}

// A sequence leaves the cache: to disk, where it is not there.
void PrefixSharing::LetGo(std::optional<PrefixCache::Entry> entry) {
  if (!entry || sessions_ == nullptr || entry->is_settled) return;
  if (!sessions_->IsSaved(entry->text())) {
    sessions_->Save(entry->text(), std::move(entry->kv), entry->last_used);
  }
}

void PrefixSharing::SaveAhead() {
  sessions_->Collect();
  const KvPool& pool = engine_.kv_pool();
  const int64_t ready = pool.free_pages() + kept_.SettledPages();
  if (sessions_->is_saving() || ready >= pool.num_pages() / kReadyShare) return;
  PrefixCache::Entry* next = kept_.OldestUnsettled();
  if (next == nullptr) return;
  next->is_settled = true;
  if (!sessions_->IsSaved(next->text())) {
    sessions_->Save(next->text(), next->kv.Fork(), next->last_used);
  }
}

int64_t PrefixSharing::SaveAll(std::chrono::steady_clock::time_point until) {
  while (std::optional<PrefixCache::Entry> newest = kept_.TakeNewest()) {
    LetGo(std::move(newest));
  }
  return sessions_ == nullptr ? 0 : sessions_->WaitForSaves(until);
}

bool PrefixSharing::WaitsForPrefix(const RunningRequest& request,
                                   const RequestsOfPass& pass) const {
  if (request.has_begun || request.needs_whole_prompt()) return false;
  const int64_t known = kept_.LongestCommon(request.text());
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
CachedText PrefixSharing::Sharable(const RunningRequest& request) const {
  // Of single neurons a few tokens are computed in another way than those of a prompt: enough are
  // left that repeating a request gives the same bits.
  const int64_t fewest = engine_.pass().limits().ffn_of_neurons ? PassShape::kPrefillTokens : 1;
  const auto prompt = std::span<const TokenId>(request.history);
  const bool has_none = request.needs_whole_prompt() || std::ssize(prompt) <= fewest;
  return {prompt.first(has_none ? 0 : prompt.size() - static_cast<size_t>(fewest)),
          request.asked.adapters.key()};
}

// The longest beginning that is in memory; and where, null where it is in kept_.
const KvSequence* PrefixSharing::FindShared(const RunningRequest& request, int64_t* longest) const {
  const CachedText sharable = Sharable(request);
  const KvSequence* best = nullptr;
  *longest = kept_.LongestCommon(sharable);
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

void PrefixSharing::Share(RunningRequest& request) {
  int64_t longest = 0;
  const KvSequence* best = FindShared(request, &longest);
  if (request.restore) {
    request.kv = std::exchange(request.restore, nullptr)->Take();
    if (request.kv.length() <= longest) request.kv.Truncate(0);
  }
  if (longest > 0 && request.kv.length() == 0) {
    request.kv = best != nullptr ? best->Fork() : std::move(*kept_.Fork(Sharable(request)));
    request.kv.Truncate(longest);
    // To go on from the middle of a shared page takes a copy of it; where that was not promised,
    // whole pages are shared.
    if (unpromised_pages() < 0) {
      request.kv.Truncate(longest / KvLayout::kPageTokens * KvLayout::kPageTokens);
    }
  }
  request.outcome.reused_tokens = request.kv.length();
}

bool PrefixSharing::IsRestoring(RunningRequest& request) {
  if (sessions_ == nullptr || request.has_begun) return false;
  if (!std::exchange(request.has_looked, true)) StartRestore(request);
  return request.restore && !request.restore->is_done();
}

// Where a file has a page more of a prompt than memory: less is not worth the wait. The pages are
// of those that it was promised.
void PrefixSharing::StartRestore(RunningRequest& request) {
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
