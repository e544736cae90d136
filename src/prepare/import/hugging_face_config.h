// config.json as the metadata of a GGUF file. Internal to prepare/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "prepare/import/hugging_face_json.h"

namespace hearth {

// What the tensors of a family are called, and how they lie.
struct PublishedFamily {
  const char* model_type;
  const char* architecture;  // in GGUF
  // GGUF rotates neighbouring rows of q and k, the published file rows half a head apart.
  bool interleaves_heads;
  const char* activation;  // where it is not hidden_act; else null
  // Inside a layer; null for a family without experts.
  const char* router;
  const char* experts;
  const char* expert_parts[3];     // gate, up, down
  bool normalizes_experts = true;  // where config.json does not say
};

struct PublishedConfig {
  const PublishedFamily* family = nullptr;
  GgufMetadata metadata;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_experts = 0;  // 0: one FFN per layer
  bool tied_embeddings = false;
  std::vector<float> rope_factors;  // of rope_freqs.weight; empty where there is none
};

// Throws Error(kUnsupported), naming it, for what is not one of the families or goes beyond them.
PublishedConfig ReadPublishedConfig(const PublishedJson& config, const std::string& model_name);

}  // namespace hearth
