// What the simulator knows of a model: sizes in memory and on flash, multiply-adds of a token. All
// weights have 4 bits and a half-precision scale per 32, as PowerInfer-2's models and Q4_0 do.
#pragma once

#include <cstdint>
#include <string>

#include "prepare/shapes/shapes.h"

namespace hearth {

// Whose strategies are replayed.
enum class SimSystem : uint8_t {
  kHearth,  // this engine's: packed files, threads that compute submit reads (docs/architecture.md)
  kPowerInfer2,  // the paper's: scales in memory, bundles of two blocks, a core that reads (P2 §4)
};
const char* SimSystemName(SimSystem system);  // "hearth", "powerinfer-2"

struct SimModel {
  std::string name;
  int64_t num_layers = 0;
  int64_t num_experts = 1;  // FFNs per layer
  int64_t experts_per_token = 1;
  int64_t neurons = 0;  // of one FFN
  int64_t hidden_size = 0;
  int64_t matrices = 3;  // of a neuron: gate, up, down; 2: fc1, fc2

  // Multiply-adds, one per weight.
  double attention_macs = 0;  // of one layer
  double output_macs = 0;
  double predictor_macs = 0;  // of one FFN

  uint64_t dense_bytes = 0;      // attention, embedding, output, norms
  uint64_t predictor_bytes = 0;  // of all FFNs
  uint64_t scale_bytes = 0;      // of all FFNs, where they are resident (P2 §7.2.3)
  uint64_t runtime_bytes = 0;    // KV cache, intermediate results
  uint64_t slot_bytes = 0;       // of a neuron in the cache
  uint64_t bundle_bytes = 0;     // of a neuron on flash
  uint64_t gate_read_bytes = 0;  // of it, the first read; the second takes the rest
  uint64_t neuron_bytes = 0;     // codes and scales of a neuron, as a mapped file has them

  int64_t num_ffns() const { return num_layers * num_experts; }
  int64_t num_neurons() const { return num_ffns() * neurons; }
  uint64_t resident_bytes() const {
    return dense_bytes + predictor_bytes + scale_bytes + runtime_bytes;
  }
  uint64_t slots_bytes() const { return slot_bytes * static_cast<uint64_t>(num_neurons()); }
};

// Bytes of a weight with its share of the scale.
inline constexpr double kSimWeightBytes = 0.5 + 2.0 / 32;

SimModel SimModelOf(const ModelShape& shape, SimSystem system);

}  // namespace hearth
