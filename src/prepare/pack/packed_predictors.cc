#include "prepare/pack/packed_predictors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "ops/compute.h"
#include "sparsity/predictor.h"

namespace hearth {
namespace {

// Every logit passes, and a file holds it (an infinity would be refused there).
constexpr float kAlwaysActive = std::numeric_limits<float>::lowest();

template <typename Expected, typename Found>
[[noreturn]] void Refuse(size_t ffn, const char* what, const Expected& expected,
                         const Found& found) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("predictor {}", ffn), what,
              fmt::format("{}", expected), fmt::format("{}", found));
}

void CheckPredictor(const QuantizedPredictor& made, DType dtype, size_t index, int64_t hidden,
                    int64_t neurons) {
  if (made.rank == 0) return;
  if (made.rank < 0 || made.rank % kRankUnit != 0 || made.rank > neurons) {
    Refuse(index, "rank", fmt::format("a multiple of 32 up to {} (neurons)", neurons), made.rank);
  }
  const auto check = [&](const char* what, uint64_t expected, size_t found) {
    if (found != expected) Refuse(index, what, expected, found);
  };
  const auto bytes = [&](int64_t rows, int64_t cols) {
    return static_cast<uint64_t>(rows) * RowBytes(dtype, static_cast<size_t>(cols));
  };
  check("bytes of down", bytes(made.rank, hidden), made.down.size());
  check("bytes of up", bytes(neurons, made.rank), made.up.size());
  check("biases", static_cast<uint64_t>(neurons), made.bias.size());
  if (!std::isfinite(made.threshold)) Refuse(index, "threshold", "a finite number", made.threshold);
}

// A tensor [experts][rows][cols] of `dtype`. row_of(expert, row, out) writes a row, or leaves the
// zeros that are in `out`.
template <typename RowFn>
PackedTensor RowsTensor(std::string name, DType dtype, const PackedLayer& layer, int64_t rows,
                        int64_t cols, RowFn row_of) {
  PackedTensor tensor;
  const uint64_t row_bytes = RowBytes(dtype, static_cast<size_t>(cols));
  const auto row_count = static_cast<uint64_t>(rows);
  const auto experts = static_cast<uint64_t>(layer.experts);
  tensor.decl = {std::move(name), dtype, {static_cast<uint64_t>(cols)}};
  if (rows > 1) tensor.decl.ne.push_back(row_count);
  if (layer.is_moe) tensor.decl.ne.push_back(experts);
  tensor.unit_bytes = row_bytes;
  tensor.bytes = experts * row_count * row_bytes;
  std::vector<std::byte> zeros(row_bytes);
  const std::vector<float> zero_values(static_cast<size_t>(cols));
  kernels::Quantize(dtype, zero_values.data(), cols, zeros.data());
  tensor.fill = [=](uint64_t begin, std::span<std::byte> out) {
    for (uint64_t at = 0; at < out.size(); at += row_bytes) {
      const uint64_t index = (begin + at) / row_bytes;
      const std::span<std::byte> row = out.subspan(at, row_bytes);
      std::copy(zeros.begin(), zeros.end(), row.begin());
      row_of(index / row_count, index % row_count, row);
    }
  };
  return tensor;
}

}  // namespace

void CheckPredictors(const PredictorSet& set, const ModelSpec& spec) {
  const FfnSpec& first = MainFfn(spec);
  const int64_t experts = std::max<int64_t>(first.num_experts, 1);
  const auto ffns = static_cast<size_t>(spec.num_layers * experts);
  if (set.ffns.size() != ffns) {
    throw Error(ErrorCode::kInvalidArgument, "predictors", "count (one per layer and expert)",
                std::to_string(ffns), std::to_string(set.ffns.size()));
  }
  if (!kernels::CanQuantize(set.dtype) || !RunsAsStored(set.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, "predictors", "type",
                "one of F32, F16, BF16, Q4_0, Q4_1 and Q8_0", NameOf(set.dtype));
  }
  for (size_t i = 0; i < ffns; ++i) {
    const FfnSpec& ffn = spec.layers[i / static_cast<size_t>(experts)].ffn;
    CheckPredictor(set.ffns[i], set.dtype, i, spec.hidden_size, ffn.intermediate_size);
  }
}

void SetPredictorMetadata(const PredictorSet& set, GgufMetadata* metadata) {
  metadata->SetString(kPredictorInputKey, PredictorInputName(set.input));
  metadata->SetBool(kPredictorReluKey, set.relu);
  std::vector<float> thresholds;
  for (const QuantizedPredictor& made : set.ffns) {
    thresholds.push_back(made.rank > 0 ? made.threshold : kAlwaysActive);
  }
  metadata->SetFloat32s(kPredictorThresholdKey, std::move(thresholds));
}

std::vector<PackedTensor> PackPredictor(const PredictorSet& set, const PackedLayer& layer,
                                        int64_t hidden) {
  const std::span<const QuantizedPredictor> made = std::span(set.ffns).subspan(
      static_cast<size_t>(layer.layer * layer.experts), static_cast<size_t>(layer.experts));
  int64_t rank = 0;
  for (const QuantizedPredictor& one : made) rank = std::max(rank, one.rank);
  if (rank == 0) return {};
  // Row `index` of rows that are as long as `to`, or shorter where another expert has a larger
  // rank.
  const auto copy = [](std::span<const std::byte> rows, size_t row_bytes, size_t index,
                       std::span<std::byte> to) {
    const auto row = rows.subspan(index * row_bytes, row_bytes);
    std::copy(row.begin(), row.end(), to.begin());
  };
  const DType dtype = set.dtype;
  std::vector<PackedTensor> out;
  out.push_back(RowsTensor(PredictorTensorName(layer.layer, "down"), dtype, layer, rank, hidden,
                           [=](uint64_t expert, uint64_t row, std::span<std::byte> to) {
                             const QuantizedPredictor& from = made[expert];
                             if (row >= static_cast<uint64_t>(from.rank)) return;
                             copy(from.down, to.size(), row, to);
                           }));
  out.push_back(
      RowsTensor(PredictorTensorName(layer.layer, "up"), dtype, layer, layer.neurons, rank,
                 [=, &layer](uint64_t expert, uint64_t slot, std::span<std::byte> to) {
                   const QuantizedPredictor& from = made[expert];
                   const auto neuron = static_cast<size_t>(layer.order[expert][slot]);
                   copy(from.up, RowBytes(dtype, static_cast<size_t>(from.rank)), neuron, to);
                 }));
  out.push_back(RowsTensor(
      PredictorTensorName(layer.layer, "bias"), DType::kF32, layer, 1, layer.neurons,
      [=, &layer](uint64_t expert, uint64_t, std::span<std::byte> to) {
        const QuantizedPredictor& from = made[expert];
        if (from.rank == 0) return;
        for (int64_t slot = 0; slot < layer.neurons; ++slot) {
          const auto neuron = static_cast<size_t>(layer.order[expert][static_cast<size_t>(slot)]);
          copy(std::as_bytes(std::span(from.bias)), sizeof(float), neuron,
               to.subspan(static_cast<size_t>(slot) * sizeof(float)));
        }
      }));
  return out;
}

}  // namespace hearth
