#include "ops/neuron_cluster.h"

#include <cstring>

namespace hearth {

ClusterCounts ComputeCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                             const kernels::GroupQ8* x, const SilentGates* silent,
                             const NeuronCluster& cluster) noexcept {
  const auto dot = [&](const RowsView& rows, const int32_t* list, int64_t count, float* out) {
    table.row_dot[static_cast<size_t>(rows.dtype)](
        {{rows.data, rows.stride, list, count}, rows.cols, x, out});
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
