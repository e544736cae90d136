// A folder that holds the sessions of many models, each in a folder of its own.
#pragma once

#include <cstdint>
#include <string>

#include "engine/session/session_store.h"

namespace hearth {

// One place for all servers of a user. Folders below it belong to one model with its settings each,
// so that servers of different models share nothing but the limit.
struct SessionRoot {
  std::string folder;
  // Of all sessions below it. One server alone keeps to it; each of several at a time may use what
  // the others left of it when it started.
  uint64_t limit_bytes = uint64_t{4} << 30;
};

// Returns the folder of one model below the root, like "smollm2-0123456789abcdef". model: its name,
// of which letters, digits, '.', '_' and '-' are kept.
std::string SessionFolderName(const std::string& model, const SessionIdentity& identity);

// Makes the root, for its owner alone, where there is none. Then removes the sessions of other
// folders that were not used for longest, until they take at most half of the limit; folders that a
// server uses stay as they are. Returns the rest of the limit, at least half of it. Throws
// Error(kIo) where the root cannot be made.
uint64_t PrepareSessionRoot(const SessionRoot& root, const std::string& own_folder);

}  // namespace hearth
