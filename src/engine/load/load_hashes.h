// Verifies what lies outside of the bundles of a packed file while it is loaded: each tensor's
// bytes against the hash that the file states (format/packed_file.h). Bundles carry checks of their
// own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "engine/load/load_chunks.h"
#include "format/gguf.h"

namespace hearth {

// Thread-safe. Each tensor's chunks come in the order of the file to every thread, so that a thread
// that waits for another's chunk does not wait for itself.
class LoadHashes {
 public:
  // Knows nothing of a file that is not packed.
  LoadHashes(const GgufFile& file, const std::vector<ResidentTensor>& tensors);

  // The bytes of a chunk; waits until those before it in its tensor have come, or Stop. Throws
  // Error(kCorrupt) where the tensor ends and is not what was written.
  void Add(const LoadChunk& chunk, std::span<const std::byte> stored);
  // Wakes all threads that wait: a thread has failed.
  void Stop();

 private:
  struct State {
    uint64_t stated = 0;
    uint64_t done_bytes = 0;  // guarded by mutex_
    ChecksumStream hash;      // only the thread with the tensor's next bytes touches it
  };

  const GgufFile& file_;
  // Whose bytes another tensor of the plan has too: a norm of two blocks.
  std::set<const ResidentTensor*> repeated_;
  std::map<const GgufTensor*, State> states_;
  std::mutex mutex_;
  std::condition_variable moved_on_;
  bool is_stopped_ = false;  // guarded by mutex_
};

}  // namespace hearth
