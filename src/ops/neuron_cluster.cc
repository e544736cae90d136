#include "ops/neuron_cluster.h"

#include <cstring>

#include "tensor/row_groups.h"

namespace hearth {

NeuronInput PrepareInput(const kernels::KernelTable& table, const FfnNeurons& ffn, const float* x,
                         kernels::GroupQ8* groups) noexcept {
  if (HasRowGroups(ffn.gate.dtype) || HasRowGroups(ffn.up.dtype)) {
    table.quantize_q8_groups(x, ffn.gate.cols, groups);
  }
  return {x, groups};
}

ClusterCounts ComputeCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                             const NeuronInput& input, const SilentGates* silent,
                             const NeuronCluster& cluster) noexcept {
  const auto dot = [&](const RowsView& rows, const int32_t* list, int64_t count, float* out) {
    const auto type = static_cast<size_t>(rows.dtype);
    const kernels::RowList of_list = {rows.data, rows.stride, list, count};
    if (HasRowGroups(rows.dtype)) {
      table.row_dot[type]({of_list, rows.cols, input.groups, out});
    } else {
      table.float_row_dot[type]({of_list, rows.cols, input.floats, out});
    }
  };
  float* gate = cluster.gate;
  int32_t* neurons = cluster.fired;
  dot(ffn.gate, cluster.rows, cluster.count, gate);
  int64_t fired = cluster.count;
  if (silent != nullptr) {
    const SilentGates gates = *silent;
    fired = 0;
    for (int64_t i = 0; i < cluster.count; ++i) {
      const float value = gate[i];
      neurons[fired] = cluster.rows[i];
      gate[fired] = value;
      fired += gates.Contains(value) ? 0 : 1;
    }
  } else {
    std::memcpy(neurons, cluster.rows, static_cast<size_t>(fired) * sizeof(int32_t));
  }
  dot(ffn.up, neurons, fired, cluster.up);
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

}  // namespace hearth
