#include "pipeline/streamed_ffns.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace hearth {
namespace {

// Which neurons of every FFN start in the cache, and where.
struct WarmStart {
  int64_t num_ffns;
  int64_t pinned;
  std::vector<int32_t> slots;  // by hotness: neuron after neuron, in each of them FFN after FFN

  explicit WarmStart(BundleStore& store)
      : num_ffns(store.source().num_ffns()), pinned(store.plan().pinned_neurons) {
    const int64_t streamed = (store.source().neurons - pinned) * num_ffns;
    const int64_t count = std::min(store.cache().num_slots(), streamed);
    std::vector<int32_t> keys(static_cast<size_t>(count));
    slots.resize(keys.size());
    for (int64_t i = 0; i < count; ++i) {
      keys[static_cast<size_t>(i)] =
          store.FirstKey(i % num_ffns) + static_cast<int32_t>(pinned + i / num_ffns);
    }
    slots.resize(static_cast<size_t>(store.cache().Seed(keys, slots)));
  }

  // Neurons below this one of an FFN are in memory.
  int64_t End(int64_t ffn) const {
    const auto count = static_cast<int64_t>(slots.size());
    return pinned + count / num_ffns + (ffn < count % num_ffns ? 1 : 0);
  }
  int32_t CacheSlot(int64_t ffn, int64_t neuron) const {
    return slots[static_cast<size_t>((neuron - pinned) * num_ffns + ffn)];
  }
};

constexpr int64_t kCopyGrain = 64;

}  // namespace

DecodeOptions StreamOptions::decode() const {
  const bool is_cluster = pipeline == PipelineKind::kCluster;
  DecodeOptions decode = {.kind = pipeline,
                          .merge_gap_bytes = merge_gap_bytes,
                          .reads_ahead = is_cluster && lookahead != Lookahead::kOff,
                          .gates_first = is_cluster && gates_first,
                          .piece_bytes = is_cluster ? piece_bytes : 0,
                          .io_thread = is_cluster ? io_thread : IoThread::kShared,
                          .processors = processors};
  if (decode.gates_first || decode.piece_bytes > 0) decode.merge_gap_bytes.reset();
  if (lookahead == Lookahead::kOn) {
    decode.processors.run_delay = [] { return std::optional<double>(); };
  }
  return decode;
}

StreamedFfns::StreamedFfns(Budget& budget, BundleSource source, const StreamPlan& plan,
                           const StreamOptions& options)
    : options_(options),
      store_(budget, std::move(source), plan, options.cache_policy()),
      ranges_(store_),
      decode_(budget, store_, options.decode()),
      kv_slots_(store_.cache(), plan.lent, plan.cache_slots, [this] { ranges_.Stop(); }),
      of_one_(options.decode().reads_ahead ? options.lookahead : Lookahead::kOff),
      of_several_(of_one_) {}

void StreamedFfns::BeginPass(int64_t decoded) {
  watch_ = Stopwatch();
  // What nobody asked for, or what a pass that ended early left.
  decode_.StopAhead();
  store_.file().CheckUnchanged();
  decoded_ = decoded;
  ranges_.ExpectAnother(decoded > 0);
  looks_ahead_ = decoded > 0 && trial().is_on();
}

void StreamedFfns::EndToken() noexcept {
  store_.cache().EndToken();
  if (decoded_ > 0) trial().EndToken(watch_.Seconds(), decoded_);
}

uint64_t StreamedFfns::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                    int64_t hidden_size, const StreamOptions& options) {
  return BundleStore::ChargedBytes(shape, plan, options.cache_policy()) +
         DecodePipeline::ChargedBytes(shape, plan, hidden_size, options.decode());
}

void StreamedFfns::Fill(Compute& compute, const std::function<void(uint64_t, uint64_t)>& progress) {
  const WarmStart warm(store_);
  const BundleSource& source = store_.source();
  const auto slot_of = [&](int64_t ffn, int64_t neuron) -> std::optional<int32_t> {
    if (neuron < warm.pinned) return store_.PinnedSlot(ffn) + static_cast<int32_t>(neuron);
    if (neuron < warm.End(ffn)) return store_.cache_slot() + warm.CacheSlot(ffn, neuron);
    return std::nullopt;
  };
  // Gates are of all neurons.
  const auto end_of = [&](int64_t ffn) {
    return store_.plan().holds_gates ? source.neurons : warm.End(ffn);
  };
  const uint64_t stride = source.layout.stride;
  uint64_t total = 0, done = 0;
  for (int64_t ffn = 0; ffn < source.num_ffns(); ++ffn) {
    total += static_cast<uint64_t>(end_of(ffn)) * stride;
  }
  for (int64_t ffn = 0; ffn < source.num_ffns(); ++ffn) {
    const auto take = [&](int64_t first, const std::byte* bundles, int64_t count) {
      compute.team().ParallelFor(count, kCopyGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const std::byte* bundle = bundles + static_cast<size_t>(i) * stride;
          store_.Take(ffn, first + i, bundle, slot_of(ffn, first + i));
        }
      });
      done += static_cast<uint64_t>(count) * stride;
      if (progress) progress(done, total);
    };
    ranges_.ReadPrefix(compute, ffn, end_of(ffn), take);
  }
  decode_.RegisterSlots();
}

}  // namespace hearth
