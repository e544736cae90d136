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

// All neurons of an FFN, in ranges: what is not pinned was read.
void Forward::DrawRanges(int64_t ffn, int64_t tokens) {
  const int64_t pinned = streamed_->store().plan().pinned_neurons;
  for (int64_t i = 0; i < tokens; ++i) {
    map_->AddRange(ffn, NeuronPlace::kPinned, 0, pinned);
    map_->AddRange(ffn, NeuronPlace::kRead, pinned, map_->neurons());
  }
}

}  // namespace hearth
