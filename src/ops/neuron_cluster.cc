#include "ops/neuron_cluster.h"

#include <algorithm>

#include "tensor/row_groups.h"

namespace hearth {
namespace {

void MultiplyRows(const kernels::KernelTable& table, const RowsView& rows, const NeuronInput& input,
                  const int32_t* list, int64_t count, float* out) noexcept {
  const auto type = static_cast<size_t>(rows.dtype);
  const kernels::RowList of_list = {rows.data, rows.stride, list, count};
  if (HasRowGroups(rows.dtype)) {
    table.row_dot[type]({of_list, rows.cols, input.groups, out});
  } else {
    table.float_row_dot[type]({of_list, rows.cols, input.floats, out});
  }
}

}  // namespace

NeuronInput PrepareInput(const kernels::KernelTable& table, const FfnNeurons& ffn, const float* x,
                         kernels::GroupQ8* groups) noexcept {
  if (HasRowGroups(ffn.gate.dtype) || (ffn.is_gated() && HasRowGroups(ffn.up.dtype))) {
    table.quantize_q8_groups(x, ffn.gate.cols, groups);
  }
  return {x, groups};
}

void MultiplyGates(const kernels::KernelTable& table, const RowsView& gates,
                   const NeuronInput& input, const int32_t* rows, int64_t count,
                   float* gate) noexcept {
  MultiplyRows(table, gates, input, rows, count, gate);
  if (gates.biases == nullptr) return;
  for (int64_t i = 0; i < count; ++i) gate[i] += gates.Bias(rows[i]);
}

int64_t PackFired(const kernels::KernelTable& table, const SilentGates* silent,
                  const NeuronGates& neurons, int32_t* fired, float* fired_gates) noexcept {
  const SilentGates gates = silent != nullptr ? *silent : kNoSilentGates;
  return table.pack_fired({neurons.rows, neurons.gates, neurons.count, gates.below, gates.from,
                           gates.to, nullptr, nullptr, fired, fired_gates});
}

ClusterCounts FinishCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                            const NeuronInput& input, const SilentGates* silent,
                            const NeuronCluster& cluster) noexcept {
  float* gate = cluster.gate;
  int32_t* neurons = cluster.fired;
  const int64_t fired =
      PackFired(table, silent, {cluster.rows, gate, cluster.count}, neurons, gate);
  if (ffn.is_gated()) {
    MultiplyRows(table, ffn.up, input, neurons, fired, cluster.up);
  } else {
    std::fill_n(cluster.up, fired, 1.0f);
  }
  float* factors = cluster.factors;
  table.ffn_activation[static_cast<size_t>(ffn.activation)](gate, cluster.up, fired, ffn.threshold,
                                                            factors);
  int64_t active = 0;
  for (int64_t i = 0; i < fired; ++i) {
    const float factor = factors[i];
    cluster.active[active] = neurons[i];
    factors[active] = factor;
    active += silent != nullptr && factor == 0.0f ? 0 : 1;
  }
  return {fired, active};
}

ClusterCounts ComputeCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                             const NeuronInput& input, const SilentGates* silent,
                             const NeuronCluster& cluster) noexcept {
  MultiplyGates(table, ffn.gate, input, cluster.rows, cluster.count, cluster.gate);
  return FinishCluster(table, ffn, input, silent, cluster);
}

}  // namespace hearth
