#include "serve/doors/response_store.h"

#include <utility>

namespace hearth::serve {
namespace {

// What a message and an entry take besides their texts.
constexpr size_t kOverheadBytes = 256;

size_t BytesOf(const ResponseStore::Stored& stored) {
  size_t bytes = kOverheadBytes;
  for (const api::ChatMessage& message : stored.messages) {
    bytes += message.content.size() + message.tool_call_id.size() + kOverheadBytes;
    for (const api::ToolCall& call : message.tool_calls) {
      bytes += call.arguments.size() + call.name.size() + call.id.size() + kOverheadBytes;
    }
  }
  return bytes;
}

}  // namespace

ResponseStore::ResponseStore(std::shared_ptr<Allowance> allowance, size_t most_bytes)
    : most_bytes_(most_bytes), share_(std::move(allowance)) {}

void ResponseStore::Put(const std::string& id, Stored stored) {
  const std::lock_guard lock(mutex_);
  const size_t bytes = BytesOf(stored);
  if (bytes > most_bytes_ || by_id_.count(id) > 0) return;
  while (!entries_.empty() && share_.bytes() + bytes > most_bytes_) RemoveOldest();
  while (!share_.Resize(share_.bytes() + bytes)) {
    if (entries_.empty()) return;
    RemoveOldest();
  }
  entries_.push_front({id, std::move(stored), bytes});
  by_id_[id] = entries_.begin();
}

std::optional<ResponseStore::Stored> ResponseStore::Find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->stored;
}

void ResponseStore::RemoveOldest() {
  share_.Resize(share_.bytes() - entries_.back().bytes);
  by_id_.erase(entries_.back().id);
  entries_.pop_back();
}

}  // namespace hearth::serve
