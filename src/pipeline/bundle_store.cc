#include "pipeline/bundle_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/stopwatch.h"
#include "pipeline/bundle_checks.h"

namespace hearth {
namespace {

NeuronCacheOptions CacheOptions(const StreamShape& shape, const StreamPlan& plan,
                                CachePolicyKind policy) {
  return {.num_keys = std::max<int64_t>(shape.all_neurons() - plan.pinned_slots(shape), 1),
          .num_slots = plan.CacheSlotsBeside(shape, 0),
          .slot_bytes = plan.slot_bytes(shape),
          .policy = policy};
}

// Every gate row starts on a cache line.
constexpr uint64_t kGateAlignment = 64;

uint64_t GateStride(const BundleLayout& layout) {
  return RoundUp<uint64_t>(GateChecked(layout).bytes, kGateAlignment);
}

void CheckAlignment(const AsyncFile& file, uint64_t unit, const char* whose) {
  if (unit % file.alignment_bytes() == 0 && unit % file.memory_alignment_bytes() == 0) return;
  throw Error(ErrorCode::kUnsupported, file.name(), "alignment of direct reads",
              fmt::format("a divisor of {} {} bytes", whose, unit),
              std::to_string(file.alignment_bytes()));
}

void CheckSource(const BundleSource& source, const StreamPlan& plan) {
  CheckAlignment(*source.file, source.layout.stride, "a bundle's");
  if (plan.all_slots(source.shape()) >= std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::kUnsupported, source.file->name(), "more than 2^31 neurons in memory");
  }
}

}  // namespace

void BundleSource::RequireHalves() const { CheckAlignment(*file, layout.split, "half a bundle's"); }

StreamShape BundleSource::ShapeOf(const BundleLayout& layout, int64_t num_ffns, int64_t neurons) {
  return {.num_ffns = num_ffns,
          .neurons = neurons,
          .bundle_bytes = layout.stride,
          .gate_bytes = GateStride(layout) + sizeof(uint32_t),
          .half_bytes = layout.stride - layout.split};
}

uint64_t BundleStore::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                   CachePolicyKind policy) {
  const NeuronCacheOptions options = CacheOptions(shape, plan, policy);
  return Buffer::ChargedBytes(plan.arena_bytes(shape)) +
         Buffer::ChargedBytes(plan.gates_bytes(shape)) + NeuronCache::TableBytes(options) +
         GateOnlyKeys::ChargedBytes(options.num_keys);
}

BundleStore::BundleStore(Budget& budget, BundleSource source, const StreamPlan& plan,
                         CachePolicyKind policy)
    : source_(std::move(source)),
      plan_(plan),
      slot_bytes_(plan.slot_bytes(source_.shape())),
      gate_stride_(GateStride(source_.layout)) {
  CheckSource(source_, plan_);
  if (plan_.holds_gates) source_.RequireHalves();
  const StreamShape shape = source_.shape();
  arena_.emplace(budget, "neurons", plan_.arena_bytes(shape), plan_.lent.bytes());
  if (plan_.holds_gates) {
    const auto neurons = static_cast<size_t>(shape.all_neurons());
    gates_ = Buffer(budget, "gates", plan_.gates_bytes(shape));
    rest_checks_ = {reinterpret_cast<uint32_t*>(gates_.data() + neurons * gate_stride_), neurons};
  }
  first_cache_slot_ = static_cast<int32_t>(plan.pinned_slots(shape));
  first_spare_slot_ = static_cast<int32_t>(plan.first_spare_slot(shape));
  NeuronCacheOptions options = CacheOptions(shape, plan, policy);
  // Every layer has as many keys, where any neuron is left to the cache.
  if (plan.pinned_neurons < source_.neurons && source_.num_layers <= NeuronCache::kMaxLayers) {
    options.num_layers = source_.num_layers;
  }
  gate_only_.emplace(budget, options.num_keys);
  cache_ =
      std::make_unique<NeuronCache>(budget, options, Slots(first_cache_slot_, options.num_slots));
}

uint64_t BundleStore::FileOffset(int64_t ffn, int64_t neuron) const {
  const int64_t layer = ffn / source_.num_experts, expert = ffn % source_.num_experts;
  return source_.layer_offsets[static_cast<size_t>(layer)] +
         static_cast<uint64_t>(expert * source_.neurons_in_file() + neuron) * source_.layout.stride;
}

std::span<std::byte> BundleStore::Slots(int32_t first, int64_t count) const {
  // The arena is the store's own; only its views are constant.
  auto* base = const_cast<std::byte*>(arena_->data());
  return {base + static_cast<size_t>(first) * slot_bytes_,
          static_cast<size_t>(count) * slot_bytes_};
}

std::span<std::byte> BundleStore::SlotsFrom(int32_t first) const {
  std::byte* begin = Slots(first, 0).data();
  return {begin, static_cast<size_t>(arena_->data() + arena_->size_bytes() - begin)};
}

std::span<std::byte> BundleStore::RangeBuffer(int64_t buffer) const {
  const size_t bytes = static_cast<size_t>(plan_.range_neurons) * source_.layout.stride;
  return SpareSlots().subspan(static_cast<size_t>(buffer) * bytes, bytes);
}

void BundleStore::Take(int64_t ffn, int64_t neuron, const std::byte* bundle,
                       std::optional<int32_t> slot) {
  const BundleLayout& layout = source_.layout;
  if (plan_.holds_gates) {
    const size_t index = NeuronIndex(ffn, neuron);
    const CheckedPart gate = GateChecked(layout);
    std::memcpy(gates_.data() + index * gate_stride_, bundle + gate.offset, gate.bytes);
    rest_checks_[index] = StoredChecks(layout, {bundle, layout.stride}).rest;
  }
  if (slot) std::memcpy(Slots(*slot, 1).data(), bundle + slot_offset(), slot_bytes_);
}

int64_t BundleStore::FindDamaged(const kernels::KernelTable& table, int64_t ffn,
                                 const NeuronsInSlots& which, SlotPart part) const noexcept {
  const kernels::RowList held = {arena_->data(), slot_bytes_, which.slots, which.count};
  if (!plan_.holds_gates) return FindDamagedBundle(table, source_.layout, held, part);
  std::array<uint32_t, kMostChecked> checks;
  for (int64_t i = 0; i < which.count; ++i) {
    checks[static_cast<size_t>(i)] = rest_checks_[NeuronIndex(ffn, which.neurons[i])];
  }
  return FindDamagedHalf(table, source_.layout, held, checks.data());
}

void BundleStore::ThrowDamaged(int64_t ffn, int64_t neuron) const {
  throw Error(ErrorCode::kCorrupt, source_.file->name(),
              fmt::format("neuron {} of {} is damaged: its check does not fit",
                          source_.first_neuron +
                              ffn % source_.num_experts * source_.neurons_in_file() + neuron,
                          BundleTensorName(ffn / source_.num_experts)));
}

void BundleStore::ThrowReadError(int error) const {
  hearth::ThrowReadError(*source_.file, "neurons", error);
}

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
