// What config.json says about rotary position embeddings, as GGUF's keys. Internal to import/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "import/archs/published_families.h"
#include "import/hugging_face_json.h"

namespace hearth {

// What frequencies are divided by, one number for each pair that is rotated: of rope_freqs.weight,
// and LongRoPE's for contexts up to the original one and for longer ones. Empty where they are not.
struct PublishedRopeFactors {
  std::vector<float> all;
  std::vector<float> short_contexts;
  std::vector<float> long_contexts;
};

// Sets "<prefix>rope.*" from `rope_parameters` (which may be nested by layer type) or from
// `rope_theta` and `rope_scaling`, with the family's own numbers where they are silent. `head_dim`
// >= 1. Throws Error(kUnsupported), naming the key, for what GGUF's keys do not carry.
PublishedRopeFactors SetPublishedRope(const PublishedJson& config, const PublishedRope& family,
                                      const std::string& prefix, int64_t head_dim,
                                      GgufMetadata* metadata);

}  // namespace hearth
