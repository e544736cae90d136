#include "pipeline/bundle_rows.h"

namespace hearth {

// Of neurons that lie `stride` bytes apart, each from byte `begin` of its bundle on; `first` is the
// neuron of the first gate, where gates are held.
FfnNeurons BundleRows::Rows(const StreamedFfn& ffn, int64_t first, int64_t count,
                            const std::byte* data, uint64_t stride, uint64_t begin) const {
  const BundleSource& source = store_.source();
  const auto rows = [&](BundleRole role) {
    return RowsOfPart(source.layout, role, source.hidden_size, count, data - begin, stride);
  };
  const auto held_gates = [&] {
    const std::byte* const held = store_.HeldGates(store_.FfnIndex(ffn.layer, ffn.expert), first);
    return RowsOfPart(source.layout, BundleRole::kGate, source.hidden_size, count,
                      held - GateChecked(source.layout).offset, store_.gate_stride());
  };
  return {.gate = store_.plan().holds_gates ? held_gates() : rows(BundleRole::kGate),
          .up = rows(BundleRole::kUp),
          .down = rows(BundleRole::kDown),
          .activation = ffn.activation,
          .threshold = ffn.threshold};
}

FfnNeurons BundleRows::OfSlots(const StreamedFfn& ffn) const {
  const BundleSource& source = store_.source();
  const int64_t slots = store_.plan().all_slots(source.shape());
  FfnNeurons rows =
      Rows(ffn, 0, slots, store_.Slots(0, 0).data(), store_.slot_bytes(), store_.slot_offset());
  if (store_.plan().holds_gates) rows.gate.rows = source.neurons;
  return rows;
}

FfnNeurons BundleRows::OfPinned(const StreamedFfn& ffn) const {
  const int32_t slot = store_.PinnedSlot(store_.FfnIndex(ffn.layer, ffn.expert));
  return Rows(ffn, 0, store_.plan().pinned_neurons, store_.Slots(slot, 0).data(),
              store_.slot_bytes(), store_.slot_offset());
}

FfnNeurons BundleRows::OfBundles(const StreamedFfn& ffn, int64_t first, int64_t count,
                                 const std::byte* bundles) const {
  return Rows(ffn, first, count, bundles, store_.source().layout.stride, 0);
}

FfnNeurons BundleRows::InSlots(const StreamedFfn& ffn, std::span<const int32_t> slots) const {
  FfnNeurons rows = OfSlots(ffn);
  for (RowsView* view : {&rows.gate, &rows.up, &rows.down}) {
    if (!view->empty()) view->rows = std::ssize(slots);
  }
  rows.slots = slots.data();
  return rows;
}

bool BundleRows::computes_in_slots() const {
  return !store_.plan().holds_gates &&
         HasRowGroups(store_.source().layout.Part(BundleRole::kGate).dtype);
}

}  // namespace hearth
