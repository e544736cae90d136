// What neurons do over a text: the activation statistics that pack, predictors and plans are made
// from (P1 §4, P2 §4.1), and their file (docs/formats/profile.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/sparse_ffn.h"
#include "storage/block_reader.h"
#include "tensor/kv_layout.h"
#include "tensor/op_kinds.h"

namespace hearth {

// Statistics of one FFN (of a layer, or of one expert), an entry per neuron in the order of the
// model that was profiled.
struct FfnProfile {
  uint64_t tokens = 0;               // that this FFN computed
  std::vector<uint64_t> gate_fired;  // tokens for which the gate passes FiringThreshold; SiLU's: 0
  std::vector<uint64_t> active;      // tokens for which the product that reaches down is not zero
  std::vector<double> mass;          // sum over tokens of |product|
  // Length of the neuron's column of down. What a neuron adds to the residual has the length
  // |product| * down_norm, so that mass * down_norm is how much of the output it carries.
  std::vector<float> down_norm;

  double OutputMass(size_t neuron) const {
    return mass[neuron] * static_cast<double>(down_norm[neuron]);
  }
};

struct ModelProfile {
  std::string model_name;   // general.name
  uint64_t model_hash = 0;  // ModelHash of the profiled file: another model is not packed by it
  // The run: the text is read in windows of `context` tokens, each a sequence of its own after
  // BOS. Tokens count every token that was run, BOS included.
  uint64_t text_hash = 0;     // XXH3-64 of its token ids (int32, without BOS)
  uint64_t text_tokens = 0;   // that the statistics hold
  uint64_t total_tokens = 0;  // of the whole run
  int64_t context = 0;
  KvCodec kv_codec = KvCodec::kF16;

  FfnActivation activation = FfnActivation::kSilu;
  float threshold = 0;  // kFatRelu
  int64_t num_layers = 0;
  int64_t num_experts = 0;  // 0: one FFN per layer
  int64_t intermediate_size = 0;
  std::vector<FfnProfile> ffns;  // [layer][expert]

  bool complete() const { return text_tokens == total_tokens; }
  // False for SiLU: its products are practically never zero.
  bool goes_sparse() const { return CanSkipNeurons(activation); }
  int64_t ffns_per_layer() const { return num_experts > 0 ? num_experts : 1; }
  const FfnProfile& At(int64_t layer, int64_t expert) const {
    return ffns[static_cast<size_t>(layer * ffns_per_layer() + expert)];
  }
  FfnProfile& At(int64_t layer, int64_t expert) {
    return ffns[static_cast<size_t>(layer * ffns_per_layer() + expert)];
  }
};

// What a profile takes in memory, and nearly in its file.
uint64_t ProfileBytes(const ModelProfile& profile);

// Writes `path`, replacing a file that is there once all is written. Throws Error(kIo), and
// Error(kInternal) for a profile whose parts do not have the sizes that it says.
void SaveProfile(const ModelProfile& profile, const std::string& path);

// Throws Error(kNotFound) or Error(kIo) where there is no file to read, Error(kCorrupt) where it
// is no profile or was altered or cut short, Error(kUnsupported) for a later version.
ModelProfile LoadProfile(const std::string& path);
ModelProfile ReadProfile(const BlockReader& file);

}  // namespace hearth
