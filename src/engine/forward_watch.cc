// What a pass draws for those who look (engine/forward.h, pipeline/neuron_map.h).
#include "engine/forward.h"

namespace hearth {

void Forward::Watch(NeuronMap* map) {
  map_ = map;
  // So that a pass allocates nothing.
  if (map != nullptr) observed_fired_.reserve(static_cast<size_t>(map->neurons()));
  if (streamed_ != nullptr) streamed_->Watch(map);
}

// Of one token, all of them in memory.
void Forward::DrawFired(int64_t ffn) {
  neurons_->VisitFired(
      [&](std::span<const int32_t> fired) { map_->Add(ffn, NeuronPlace::kPinned, fired); });
}

// Of `tokens` that an operator computed together.
template <class Operator>
void Forward::DrawFired(int64_t ffn, int64_t tokens, const Operator& op) {
  for (int64_t token = 0; token < tokens; ++token) {
    observed_fired_.clear();
    op.ListFired(token, observed_fired_);
    map_->Add(ffn, NeuronPlace::kPinned, observed_fired_);
  }
}
template void Forward::DrawFired(int64_t, int64_t, const SparseBatch&);
template void Forward::DrawFired(int64_t, int64_t, const SparsePrefill&);

// All neurons of an FFN, in ranges: what is neither pinned nor in the cache is read, and what lies
// alone in the cache too.
void Forward::DrawRanges(int64_t ffn, int64_t tokens) {
  const BundleStore& store = streamed_->store();
  const int64_t pinned = store.plan().pinned_neurons;
  const auto draw = [&](NeuronPlace place, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < tokens; ++i) map_->AddRange(ffn, place, begin, end);
  };
  draw(NeuronPlace::kPinned, 0, pinned);
  const auto is_cached = [&](int64_t neuron) { return store.CachedSlot(ffn, neuron) >= 0; };
  for (int64_t begin = pinned, end; begin < map_->neurons(); begin = end) {
    const bool cached = is_cached(begin);
    for (end = begin + 1; end < map_->neurons() && is_cached(end) == cached;) ++end;
    draw(cached ? NeuronPlace::kCached : NeuronPlace::kRead, begin, end);
  }
}

}  // namespace hearth
