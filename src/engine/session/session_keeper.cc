#include "engine/session/session_keeper.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "engine/session/prefix_cache.h"
#include "format/gguf.h"
#include "format/packed_file.h"

namespace hearth {
namespace {

// False where a page on flash could not be read or written: what is missing is computed again.
template <typename Copy>
bool Copied(Copy&& copy) {
  try {
    std::forward<Copy>(copy)();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

PageTransfer::PageTransfer(KvSequence kv)
    : kv_(std::move(kv)), pages_(kv_.page_ids().begin(), kv_.page_ids().end()) {}

void PageTransfer::Abandon() {
  const std::lock_guard lock(mutex_);
  is_abandoned_ = true;
  kv_.Truncate(0);
}

bool PageTransfer::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

bool PageTransfer::is_abandoned() const {
  const std::lock_guard lock(mutex_);
  return is_abandoned_;
}

KvSequence PageTransfer::Take() {
  const std::lock_guard lock(mutex_);
  is_abandoned_ = true;
  kv_.Truncate(std::min(tokens_, kv_.length()));
  return std::move(kv_);
}

bool PageTransfer::CopyOut(int64_t page, uint64_t offset, std::span<std::byte> out) {
  const std::lock_guard lock(mutex_);
  if (is_abandoned_) return false;
  return Copied([&] { kv_.pool().CopyOut(pages_[static_cast<size_t>(page)], offset, out); });
}

bool PageTransfer::CopyIn(int64_t page, uint64_t offset, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (is_abandoned_) return false;
  return Copied([&] { kv_.pool().CopyIn(pages_[static_cast<size_t>(page)], offset, bytes); });
}

void PageTransfer::Finish(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  is_done_ = true;
  tokens_ = tokens;
}

JobThread::JobThread() : thread_([this] { Run(); }) {}

JobThread::~JobThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void JobThread::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

void JobThread::Run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

SessionKeeper::SessionKeeper(std::unique_ptr<SessionStore> store) : store_(std::move(store)) {}

SessionKeeper::~SessionKeeper() {
  for (const Saving& save : saves_) save.transfer->Abandon();
}

void SessionKeeper::TellEnd() {
  {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
  }
  ended_.notify_all();
}

void SessionKeeper::Save(const CachedText& text, KvSequence kv, SessionStore::Time last_used) {
  const Saving save = {
      std::make_shared<PageTransfer>(std::move(kv)),
      std::make_shared<const std::vector<TokenId>>(text.tokens.begin(), text.tokens.end()),
      text.adapters};
  saves_.push_back(save);
  saver_.Post(
      [this, transfer = save.transfer, tokens = save.tokens, key = save.adapters, last_used] {
        if (transfer->is_abandoned()) return;
        const auto copy = [&](int64_t page, uint64_t offset, std::span<std::byte> out) {
          return transfer->CopyOut(page, offset, out);
        };
        transfer->Finish(store_->Save({*tokens, key}, copy, last_used) ? std::ssize(*tokens) : 0);
        TellEnd();
      });
}

const KvSequence* SessionKeeper::FindSaving(const CachedText& text, int64_t* common) const {
  const KvSequence* best = nullptr;
  for (const Saving& save : saves_) {
    const int64_t here = CommonPrefix({*save.tokens, save.adapters}, text);
    if (here <= *common) continue;
    *common = here;
    best = &save.transfer->kv();
  }
  return best;
}

void SessionKeeper::Collect() {
  while (!saves_.empty() && saves_.front().transfer->is_done()) {
    saves_.front().transfer->Abandon();
    saves_.pop_front();
  }
}

bool SessionKeeper::WaitForSave(Clock::time_point until) {
  if (saves_.empty()) return false;
  const std::shared_ptr<PageTransfer> oldest = saves_.front().transfer;
  bool is_done = false;
  {
    std::unique_lock lock(mutex_);
    is_done = ended_.wait_until(lock, until, [&] { return oldest->is_done(); });
  }
  oldest->Abandon();
  saves_.pop_front();
  if (!is_done) Warn("a session is not saved: the disk is too slow for it");
  return true;
}

int64_t SessionKeeper::WaitForSaves(Clock::time_point until) {
  int64_t abandoned = 0;
  for (const auto& [transfer, tokens, adapters] : saves_) {
    {
      std::unique_lock lock(mutex_);
      const auto is_done = [&save = transfer] { return save->is_done(); };
      abandoned += ended_.wait_until(lock, until, is_done) ? 0 : 1;
    }
    transfer->Abandon();
  }
  saves_.clear();
  return abandoned;
}

std::shared_ptr<PageTransfer> SessionKeeper::Restore(const CachedText& text, KvSequence kv) {
  const auto wanted = text.tokens.first(static_cast<size_t>(kv.length()));
  std::vector<TokenId> tokens(wanted.begin(), wanted.end());
  auto transfer = std::make_shared<PageTransfer>(std::move(kv));
  restorer_.Post([this, transfer, tokens = std::move(tokens), key = text.adapters] {
    if (transfer->is_abandoned()) return;
    const auto take = [&](int64_t page, uint64_t offset, std::span<const std::byte> bytes) {
      return transfer->CopyIn(page, offset, bytes);
    };
    transfer->Finish(store_->Restore({tokens, key}, take));
    TellEnd();
  });
  return transfer;
}

namespace {

// What is on a device gives other bits: the model is another one with it.
uint64_t HashOfModel(Engine& engine) {
  const uint64_t hash = ModelHash(engine.model().Reopen());
  const DevicePart* const device = engine.device().part.get();
  if (device == nullptr) return hash;
  const std::string placement = device->device().info().name + device->PlacementText();
  return hash ^ Checksum(std::as_bytes(std::span(placement)));
}

}  // namespace

namespace {

SessionIdentity IdentityOf(Engine& engine) {
  return {.model_hash = HashOfModel(engine),
          .mode = engine.mode(),
          .isa = engine.compute().isa(),
          .layout = engine.kv_pool().layout(),
          .activations = engine.pass().limits().activations};
}

}  // namespace

std::unique_ptr<SessionKeeper> OpenSessions(Engine& engine, SessionStoreOptions options) {
  return std::make_unique<SessionKeeper>(
      std::make_unique<SessionStore>(std::move(options), IdentityOf(engine)));
}

std::unique_ptr<SessionKeeper> OpenSessionsBelow(Engine& engine, const SessionRoot& root,
                                                 const std::string& model,
                                                 SessionStoreOptions options) {
  SessionIdentity identity = IdentityOf(engine);
  const std::string own = SessionFolderName(model, identity);
  options.limit_bytes = PrepareSessionRoot(root, own);
  options.folder = root.folder + "/" + own;
  return std::make_unique<SessionKeeper>(
      std::make_unique<SessionStore>(std::move(options), std::move(identity)));
}

void SessionKeeper::WaitForAny(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, at_most, [this] { return num_ended_ != num_seen_; });
  num_seen_ = num_ended_;
}

}  // namespace hearth
