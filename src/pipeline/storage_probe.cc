#include "pipeline/storage_probe.h"

#include <algorithm>
#include <array>
#include <random>

#include "base/stopwatch.h"

namespace hearth {

double ProbeNeuronReads(BundleStore& store, double seconds) {
  const int64_t pinned = store.plan().pinned_neurons;
  const int64_t streamed = store.source().neurons - pinned;
  if (streamed == 0) return 0;
  const int64_t at_once = std::min<int64_t>(store.plan().queue_depth, store.plan().spare_slots());
  const std::unique_ptr<ReadQueue> queue =
      store.file().OpenQueue({.depth = static_cast<int>(at_once)});
  std::mt19937_64 random(1);
  const auto submit = [&](uint64_t slot) {
    const auto ffn =
        static_cast<int64_t>(random() % static_cast<uint64_t>(store.source().num_ffns()));
    const auto neuron = pinned + static_cast<int64_t>(random() % static_cast<uint64_t>(streamed));
    const ReadRequest request = {
        .offset = store.FileOffset(ffn, neuron) + store.slot_offset(),
        .data = store.Slots(store.spare_slot() + static_cast<int32_t>(slot), 1).data(),
        .bytes = static_cast<uint32_t>(store.slot_bytes()),
        .tag = slot};
    return queue->Submit({&request, 1}) == 1;
  };
  const Stopwatch watch;
  for (int64_t slot = 0; slot < at_once; ++slot) submit(static_cast<uint64_t>(slot));
  uint64_t bytes = 0;
  std::array<ReadCompletion, 64> done;
  while (queue->in_flight() > 0) {
    const size_t count = queue->Wait(done);
    const bool reads_on = watch.Seconds() < seconds;
    for (size_t i = 0; i < count; ++i) {
      if (done[i].error != 0) store.ThrowReadError(done[i].error);
      bytes += store.slot_bytes();
      if (reads_on) submit(done[i].tag);
    }
  }
  return static_cast<double>(bytes) / watch.Seconds();
}

}  // namespace hearth
