#include "pipeline/bundle_store.h"

#include <fmt/format.h>

#include <limits>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

NeuronCacheOptions CacheOptions(const StreamShape& shape, const StreamPlan& plan,
                                CachePolicyKind policy) {
  return {.num_keys = std::max<int64_t>(shape.all_neurons() - plan.pinned_slots(shape), 1),
          .num_slots = plan.cache_slots,
          .slot_bytes = shape.slot_bytes,
          .policy = policy};
}

void CheckSource(const BundleSource& source, const StreamPlan& plan) {
  if (source.layout.stride % source.file->alignment_bytes() != 0 ||
      source.layout.stride % source.file->memory_alignment_bytes() != 0) {
    throw Error(ErrorCode::kUnsupported, source.file->name(), "alignment of direct reads",
                fmt::format("a divisor of a bundle's {} bytes", source.layout.stride),
                std::to_string(source.file->alignment_bytes()));
  }
  if (plan.all_slots(source.shape()) >= std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorCode::kUnsupported, source.file->name(), "more than 2^31 neurons in memory");
  }
}

}  // namespace

uint64_t BundleStore::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                   CachePolicyKind policy) {
  return Buffer::ChargedBytes(static_cast<uint64_t>(plan.all_slots(shape)) * shape.slot_bytes) +
         NeuronCache::TableBytes(CacheOptions(shape, plan, policy));
}

BundleStore::BundleStore(Budget& budget, BundleSource source, const StreamPlan& plan,
                         CachePolicyKind policy)
    : source_(std::move(source)), plan_(plan) {
  CheckSource(source_, plan_);
  const StreamShape shape = source_.shape();
  arena_ =
      Buffer(budget, "neurons", static_cast<size_t>(plan.all_slots(shape)) * source_.layout.stride);
  first_cache_slot_ = static_cast<int32_t>(plan.pinned_slots(shape));
  first_spare_slot_ = first_cache_slot_ + static_cast<int32_t>(plan.cache_slots);
  NeuronCacheOptions options = CacheOptions(shape, plan, policy);
  // Every layer has as many keys, where any neuron is left to the cache.
  if (plan.pinned_neurons < source_.neurons && source_.num_layers <= NeuronCache::kMaxLayers) {
    options.num_layers = source_.num_layers;
  }
  cache_ =
      std::make_unique<NeuronCache>(budget, options, Slots(first_cache_slot_, plan.cache_slots));
}

uint64_t BundleStore::FileOffset(int64_t ffn, int64_t neuron) const {
  const int64_t layer = ffn / source_.num_experts, expert = ffn % source_.num_experts;
  return source_.layer_offsets[static_cast<size_t>(layer)] +
         static_cast<uint64_t>(expert * source_.neurons + neuron) * source_.layout.stride;
}

std::span<std::byte> BundleStore::Slots(int32_t first, int64_t count) const {
  const size_t stride = source_.layout.stride;
  // The arena is the store's own; only its views are constant.
  auto* base = const_cast<std::byte*>(arena_.data());
  return {base + static_cast<size_t>(first) * stride, static_cast<size_t>(count) * stride};
}

FfnNeurons BundleStore::Rows(const StreamedFfn& ffn, int32_t first, int64_t count) const {
  const auto rows = [&](BundleRole role) {
    const BundlePart& part = source_.layout.Part(role);
    return RowsView{.data = Slots(first, count).data() + part.offset,
                    .dtype = part.dtype,
                    .stride = source_.layout.stride,
                    .cols = source_.hidden_size,
                    .rows = count};
  };
  return {.gate = rows(BundleRole::kGate),
          .up = rows(BundleRole::kUp),
          .down = rows(BundleRole::kDown),
          .activation = ffn.activation,
          .threshold = ffn.threshold};
}

void BundleStore::ThrowDamaged(int64_t ffn, int64_t neuron) const {
  throw Error(ErrorCode::kCorrupt, source_.file->name(),
              fmt::format("neuron {} of {} is damaged: its check does not fit",
                          ffn % source_.num_experts * source_.neurons + neuron,
                          BundleTensorName(ffn / source_.num_experts)));
}

void BundleStore::ThrowReadError(int error) const {
  source_.file->CheckUnchanged();  // says more where that is why
  throw Error(ErrorCode::kIo, source_.file->name(),
              "reading neurons failed: " + std::generic_category().message(error));
}

}  // namespace hearth
