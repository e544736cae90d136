#include "prepare/pack/bundle_encoder.h"

#include <cstring>
#include <utility>

#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "tensor/row_groups.h"

namespace hearth {

BundleEncoder::BundleEncoder(BundleLayout layout, int64_t hidden)
    : layout_(std::move(layout)), hidden_(hidden) {}

void BundleEncoder::Encode(const NeuronRows& neuron, std::span<std::byte> bundle) {
  std::memset(bundle.data(), 0, layout_.stride);
  PutRow(neuron.gate, layout_.Part(BundleRole::kGate), bundle);
  if (const BundlePart* up = layout_.FindPart(BundleRole::kUp)) PutRow(neuron.up, *up, bundle);
  PutRow(neuron.down, layout_.Part(BundleRole::kDown), bundle);
  if (const BundlePart* bias = layout_.FindPart(BundleRole::kBias)) {
    std::memcpy(bundle.data() + bias->offset, &neuron.bias, sizeof(neuron.bias));
  }
  SetBundleChecks(layout_, bundle);
}

void BundleEncoder::PutRow(const StoredRow& row, const BundlePart& part,
                           std::span<std::byte> bundle) {
  const std::byte* blocks = row.data;
  if (row.dtype != part.dtype) {
    converted_.resize(RowBytes(part.dtype, static_cast<size_t>(hidden_)));
    kernels::Convert(row.dtype, row.data, hidden_, part.dtype, converted_.data());
    blocks = converted_.data();
  }
  std::byte* const out = bundle.data() + part.offset;
  if (HasRowGroups(part.dtype)) {
    kernels::PackRow(part.dtype, blocks, hidden_, out);
  } else {
    std::memcpy(out, blocks, part.bytes);
  }
}

void ReadBundleRow(const BundlePart& part, int64_t hidden, std::span<const std::byte> bundle,
                   std::byte* row) {
  const std::byte* const in = bundle.data() + part.offset;
  if (HasRowGroups(part.dtype)) {
    kernels::UnpackRow(part.dtype, in, hidden, row);
  } else {
    std::memcpy(row, in, part.bytes);
  }
}

}  // namespace hearth
