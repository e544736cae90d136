#include "engine/load/load_hashes.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "format/bundle_layout.h"
#include "format/packed_file.h"

namespace hearth {

LoadHashes::LoadHashes(const GgufFile& file, const std::vector<ResidentTensor>& tensors)
    : file_(file) {
  if (!IsPacked(file.metadata())) return;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < file.tensors().size(); ++i) places[file.tensors()[i].name] = i;
  std::set<std::pair<const GgufTensor*, uint64_t>> seen;
  for (const ResidentTensor& tensor : tensors) {
    if (!seen.emplace(tensor.stored, tensor.stored_begin()).second) repeated_.insert(&tensor);
    const auto stated = StatedTensorHash(file, places.at(tensor.stored->name));
    if (stated && !tensor.bundles) states_[tensor.stored].stated = *stated;
  }
}

void LoadHashes::Add(const LoadChunk& chunk, std::span<const std::byte> stored) {
  const GgufTensor& tensor = *chunk.tensor->stored;
  const auto found = states_.find(&tensor);
  if (found == states_.end() || repeated_.count(chunk.tensor) != 0) return;
  State& state = found->second;
  {
    std::unique_lock lock(mutex_);
    moved_on_.wait(lock, [&] { return is_stopped_ || state.done_bytes == chunk.stored_offset(); });
    if (is_stopped_) return;
  }
  state.hash.Update(stored);  // nobody else's turn
  const bool is_whole = chunk.stored_offset() + stored.size() == tensor.bytes;
  if (is_whole && state.hash.Digest() != state.stated) {
    throw Error(
        ErrorCode::kCorrupt, file_.path(),
        fmt::format("tensor '{}' was altered after it was written: its hash is {:016x}, and "
                    "the header says {:016x}; pack the model again",
                    Printable(tensor.name), state.hash.Digest(), state.stated));
  }
  const std::lock_guard lock(mutex_);
  state.done_bytes += stored.size();
  moved_on_.notify_all();
}

void LoadHashes::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  moved_on_.notify_all();
}

}  // namespace hearth
