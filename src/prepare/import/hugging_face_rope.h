// What config.json says about rotary position embeddings, as GGUF's keys. Internal to prepare/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "prepare/import/hugging_face_json.h"

namespace hearth {

// Sets "<prefix>rope.freq_base" and what stretches it, from `rope_parameters` (which may be nested
// by layer type, where all layers have the same) or from `rope_theta` and `rope_scaling`. Returns
// what frequencies are divided by (of rope_freqs.weight), empty where they are not. `head_dim`
// >= 1. Throws Error(kUnsupported), naming the key, for what GGUF's keys do not carry.
std::vector<float> SetPublishedRope(const PublishedJson& config, const std::string& prefix,
                                    int64_t head_dim, GgufMetadata* metadata);

}  // namespace hearth
