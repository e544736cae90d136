// What a packed file will hold and where its bytes come from. Internal to prepare/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "prepare/pack/pack.h"

namespace hearth {

// A matrix with a row per neuron: a tensor of the source, or some rows of each of its experts.
struct NeuronMatrix {
  const GgufTensor* tensor = nullptr;  // null: the FFN has none
  uint64_t first_row = 0;
};

// The FFNs of one layer in the source, and how their neurons will lie.
struct PackedLayer {
  int64_t layer = 0;
  bool is_moe = false;
  int64_t experts = 1;                      // 1 for a dense FFN
  int64_t neurons = 0;                      // of one expert
  NeuronMatrix gate;                        // [experts][neurons][hidden]; the first of two matrices
  NeuronMatrix up;                          // likewise; nothing for two matrices
  const GgufTensor* down = nullptr;         // [experts][hidden][neurons]
  const GgufTensor* bias = nullptr;         // [experts][neurons], of gate; null where there is none
  std::vector<std::vector<int32_t>> order;  // per expert: the neuron of every bundle

  // What bundles are made of, without biases.
  std::vector<const GgufTensor*> matrices() const {
    if (up.tensor == nullptr || up.tensor == gate.tensor) return {down, gate.tensor};
    return {down, gate.tensor, up.tensor};
  }
  uint64_t ffn_bytes(const GgufTensor& tensor) const {
    return tensor.bytes / static_cast<uint64_t>(experts);
  }
};

// A tensor of the packed file that is no bundle. fill(begin, out) makes bytes of it on any thread;
// begin and out.size() are multiples of unit_bytes, but for the end of the tensor.
struct PackedTensor {
  GgufTensorDecl decl;
  uint64_t bytes = 0;
  uint64_t unit_bytes = 1;
  const GgufTensor* copied = nullptr;  // of the source, byte for byte; null for what is made
  std::function<void(uint64_t begin, std::span<std::byte> out)> fill;
};

struct PackPlan {
  int64_t hidden = 0;
  DType quant = DType::kQ4_0;
  BundleLayout layout;
  GgufMetadata metadata;             // with the keys of a packed file
  std::vector<PackedTensor> others;  // in the order of the file, before all bundles
  std::vector<PackedLayer> layers;   // a bundle tensor each
  uint64_t predictor_bytes = 0;
  uint64_t neurons = 0;

  std::vector<GgufTensorDecl> Decls() const;
};

// Checks everything that can be checked before writing, as PackModel says. `source` and what
// `options` points to must outlive the plan, which must not be copied: fills point into it.
std::unique_ptr<const PackPlan> PlanPack(const GgufFile& source, const PackOptions& options);

}  // namespace hearth
