// Conversations that a later request of the Responses API may go on with.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/allowance.h"

namespace hearth::serve {

// The newest ones that a share of the allowance holds; those that were not used for longest go
// first. Thread-safe.
class ResponseStore {
 public:
  // `most_bytes`: of all conversations together; what they hold is counted in `allowance` too.
  ResponseStore(std::shared_ptr<Allowance> allowance, size_t most_bytes);

  struct Stored {
    std::vector<api::ChatMessage> messages;  // the answer included, instructions not
  };
  // Keeps nothing where there is no room for it.
  void Put(const std::string& id, Stored stored);
  // Nothing where it is not, or no longer, there.
  std::optional<Stored> Find(const std::string& id);

 private:
  struct Entry {
    std::string id;
    Stored stored;
    size_t bytes = 0;
  };
  void RemoveOldest();

  const size_t most_bytes_;
  std::mutex mutex_;  // of all below
  AllowanceShare share_;
  std::list<Entry> entries_;  // the one that was used last comes first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
};

}  // namespace hearth::serve
