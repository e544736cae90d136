// What a thread computes of an FFN for one token: the products of a few neurons (P1 §5.4).
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"
#include "ops/sparse_ffn.h"

namespace hearth {

// A token as rows of neurons meet it.
struct NeuronInput {
  const float* floats = nullptr;             // for rows of floats
  const kernels::GroupQ8* groups = nullptr;  // for row groups
};

// x as the gate and up rows of `ffn` want it; `groups` is room for RowGroupCount(hidden) of them.
// Both must outlive the result.
NeuronInput PrepareInput(const kernels::KernelTable& table, const FfnNeurons& ffn, const float* x,
                         kernels::GroupQ8* groups) noexcept;

// A cluster of neurons, as rows of an FfnNeurons, and where its results go; all of `count` entries.
struct NeuronCluster {
  const int32_t* rows = nullptr;  // distinct
  int64_t count = 0;
  float* gate = nullptr;     // products of the gates; FinishCluster overwrites them
  float* up = nullptr;       // scratch
  int32_t* fired = nullptr;  // scratch
  // Rows whose factor is not zero, in the order of `rows`, packed to the front, and their factors.
  int32_t* active = nullptr;
  float* factors = nullptr;
};

struct ClusterCounts {
  int64_t fired = 0;   // up rows multiplied, where there are any
  int64_t active = 0;  // entries of active and factors
};

// Gates, then up and the activation of rows that fire; all rows where `silent` is null. A row's
// products depend on nothing but the row and the token. One thread, no allocation.
ClusterCounts ComputeCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                             const NeuronInput& input, const SilentGates* silent,
                             const NeuronCluster& cluster) noexcept;

// Its two parts. gate[i] = the product of row rows[i] with the token, plus the row's bias.
void MultiplyGates(const kernels::KernelTable& table, const RowsView& gates,
                   const NeuronInput& input, const int32_t* rows, int64_t count,
                   float* gate) noexcept;
// What follows once cluster.gate is known. Needs only up and down of `ffn`.
ClusterCounts FinishCluster(const kernels::KernelTable& table, const FfnNeurons& ffn,
                            const NeuronInput& input, const SilentGates* silent,
                            const NeuronCluster& cluster) noexcept;

// Numbers of some neurons and the products of their gates.
struct NeuronGates {
  const int32_t* rows = nullptr;
  const float* gates = nullptr;
  int64_t count = 0;
};

// Packs numbers and gates of neurons that fire to `fired` and `fired_gates`, in order; returns how
// many those are. `fired` may be neurons.rows, and `fired_gates` may be neurons.gates. All fire
// where `silent` is null.
int64_t PackFired(const kernels::KernelTable& table, const SilentGates* silent,
                  const NeuronGates& neurons, int32_t* fired, float* fired_gates) noexcept;

}  // namespace hearth
