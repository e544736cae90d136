#include "prepare/synth/synth_tensor_maker.h"

#include <cstring>
#include <numeric>

#include "format/bundle_layout.h"
#include "kernels/dequantize.h"
#include "prepare/pack/bundle_encoder.h"

namespace hearth {

SynthTensorMaker::SynthTensorMaker(const ModelShape& shape, uint64_t seed,
                                   const PlantedModel* planted)
    : hidden_(shape.hidden_size),
      neurons_(shape.intermediate_size),
      generator_(seed),
      planted_(planted) {}

uint64_t SynthTensorMaker::UnitBytes(const SynthTensor& tensor) {
  const DTypeInfo& info = InfoOf(tensor.decl.dtype);
  if (tensor.source == WeightSource::kRandom) return info.block_bytes;
  return RowBytes(tensor.decl.dtype, static_cast<size_t>(tensor.decl.ne[0]));
}

void SynthTensorMaker::Make(const SynthTensor& tensor, uint64_t piece, uint64_t first_unit,
                            std::span<std::byte> out) const {
  const auto unit_bytes = static_cast<size_t>(UnitBytes(tensor));
  switch (tensor.source) {
    case WeightSource::kRandom:
      return generator_.Fill(tensor.decl.dtype, tensor.random.distribution, tensor.random.stream,
                             piece, out);
    case WeightSource::kBundle:
      return MakeBundles(tensor, first_unit, out);
    case WeightSource::kBundleOrder:
    case WeightSource::kBundleRate:
    case WeightSource::kPredictorBias:
      for (size_t at = 0; at < out.size(); at += unit_bytes) {
        MakeList(tensor, static_cast<int64_t>(first_unit + at / unit_bytes),
                 out.subspan(at, unit_bytes));
      }
      return;
    default:
      break;
  }
  std::vector<float> row(static_cast<size_t>(tensor.decl.ne[0]));
  std::shared_ptr<const PlantedBasis> basis;
  if (tensor.layer >= 0 && planted_->plants_neurons()) {
    basis = planted_->space().BasisOf(tensor.layer);
  }
  const uint64_t rows = tensor.decl.ne[1];  // of one expert
  std::vector<int32_t> order;
  int64_t ordered_expert = -1;
  for (size_t at = 0; at < out.size(); at += unit_bytes) {
    const uint64_t number = first_unit + at / unit_bytes;
    const auto expert = static_cast<int64_t>(number / rows);
    auto index = static_cast<int64_t>(number % rows);
    if (tensor.source == WeightSource::kPredictorUp) {
      if (expert != ordered_expert) order = OrderOf(tensor.layer, expert);
      ordered_expert = expert;
      index = order[static_cast<size_t>(index)];
    }
    MakeRow(tensor, basis.get(), expert, index, row);
    kernels::Quantize(tensor.decl.dtype, row.data(), static_cast<int64_t>(row.size()),
                      out.data() + at);
  }
}

void SynthTensorMaker::MakeRow(const SynthTensor& tensor, const PlantedBasis* basis, int64_t expert,
                               int64_t index, std::span<float> out) const {
  switch (tensor.source) {
    case WeightSource::kPlantedEmbedding:
      return planted_->space().Embedding(static_cast<TokenId>(index), out.data());
    case WeightSource::kPlantedGate:
      return planted_->GateRow(*basis, tensor.layer, expert, index, out.data());
    case WeightSource::kPlantedUp:
      return planted_->UpRow(*basis, tensor.layer, expert, index, out.data());
    case WeightSource::kPlantedRouter:
      return planted_->RouterRow(tensor.layer, index, out.data());
    case WeightSource::kPredictorDown:
      std::memcpy(out.data(), basis->Direction(index), out.size_bytes());
      return;
    case WeightSource::kPredictorUp:
      return planted_->PredictorRow(tensor.layer, expert, index, out.data());
    default:
      return;  // not rows of floats
  }
}

std::vector<int32_t> SynthTensorMaker::OrderOf(int64_t layer, int64_t expert) const {
  std::vector<int32_t> order(static_cast<size_t>(neurons_));
  std::iota(order.begin(), order.end(), 0);
  if (planted_ == nullptr || !planted_->plants_neurons()) return order;
  const std::vector<int32_t>& place = planted_->Ffn(layer, expert).place;
  for (size_t j = 0; j < place.size(); ++j) {
    order[static_cast<size_t>(place[j])] = static_cast<int32_t>(j);
  }
  return order;
}

void SynthTensorMaker::MakeList(const SynthTensor& tensor, int64_t expert,
                                std::span<std::byte> out) const {
  const std::vector<int32_t> order = OrderOf(tensor.layer, expert);
  if (tensor.source == WeightSource::kBundleOrder) {
    std::memcpy(out.data(), order.data(), out.size());
    return;
  }
  std::vector<float> values(order.size());
  for (size_t slot = 0; slot < order.size(); ++slot) {
    values[slot] =
        tensor.source == WeightSource::kBundleRate
            ? static_cast<float>(planted_->ActiveRate(static_cast<int64_t>(slot)))
            : planted_->Ffn(tensor.layer, expert).predictor_bias[static_cast<size_t>(order[slot])];
  }
  std::memcpy(out.data(), values.data(), out.size());
}

void SynthTensorMaker::MakeBundles(const SynthTensor& tensor, uint64_t first,
                                   std::span<std::byte> out) const {
  BundleEncoder encoder(MakeBundleLayout(tensor.bundle_dtype, hidden_), hidden_);
  const auto stride = static_cast<size_t>(encoder.layout().stride);
  std::shared_ptr<const PlantedBasis> basis;
  const bool plants_gate = planted_ != nullptr && planted_->plants_neurons();
  const bool plants_up = plants_gate && planted_->plants_up();
  if (plants_gate) basis = planted_->space().BasisOf(tensor.layer);
  std::vector<float> gate(static_cast<size_t>(hidden_)), up(gate.size());
  const size_t row_bytes = RowBytes(tensor.bundle_dtype, gate.size());
  std::vector<std::byte> random[3];  // gate, up, down
  for (auto& row : random) row.resize(row_bytes);
  const auto draw = [&](const RandomWeights& weights, uint64_t row,
                        std::vector<std::byte>& bytes) -> StoredRow {
    generator_.Fill(tensor.bundle_dtype, weights.distribution, weights.stream, row, bytes);
    return {tensor.bundle_dtype, bytes.data()};
  };
  std::vector<int32_t> order;
  int64_t ordered_expert = -1;
  for (size_t at = 0; at < out.size(); at += stride) {
    const uint64_t row = first + at / stride;
    const auto expert = static_cast<int64_t>(row / static_cast<uint64_t>(neurons_));
    if (expert != ordered_expert) order = OrderOf(tensor.layer, expert);
    ordered_expert = expert;
    const int64_t neuron = order[row % static_cast<uint64_t>(neurons_)];
    if (plants_gate) planted_->GateRow(*basis, tensor.layer, expert, neuron, gate.data());
    if (plants_up) planted_->UpRow(*basis, tensor.layer, expert, neuron, up.data());
    encoder.Encode({plants_gate ? FloatRow(gate.data()) : draw(tensor.gate, row, random[0]),
                    plants_up ? FloatRow(up.data()) : draw(tensor.up, row, random[1]),
                    draw(tensor.down, row, random[2])},
                   out.subspan(at, stride));
  }
}

}  // namespace hearth
