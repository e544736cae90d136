// Gemma 2 and 3: norms before and after attention and FFN, GELU gates, scaled embeddings, and
// windows in most layers. Gemma 2 caps its scores and logits; Gemma 3 norms queries and keys
// instead, and rotates them by another base in layers with a window. Files do not say which layers
// have one.
#include <cmath>

#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {
namespace {

// Where scores are divided by the square root of hidden / heads, and not of a head's size.
constexpr int64_t kLayersOfGemma2With27B = 46;
constexpr int64_t kLayersOfGemma3With27B = 62;

void ReadGemma(const GgufFile& file, int64_t layers_of_27b, ModelSpec* spec) {
  const ArchKeys keys(file);
  // Hugging Face rounds this root to float32, so this code does too.
  spec->embedding_scale = std::sqrt(static_cast<float>(spec->hidden_size));
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kGelu, 0, spec);
  for (LayerSpec& layer : spec->layers) {
    layer.norm_after = true;
    AttentionSpec& attention = layer.attention;
    if (spec->num_layers == layers_of_27b && !keys.Has("attention.scale")) {
      attention.query_scale =
          1 / std::sqrt(static_cast<double>(spec->hidden_size / attention.num_heads));
    }
  }
}

// The last layer of every `period` layers has no window.
bool SeesAll(size_t layer, size_t period) { return layer % period == period - 1; }

}  // namespace

void ReadGemma2(const GgufFile& file, ModelSpec* spec) {
  const ArchKeys keys(file);
  ReadGemma(file, kLayersOfGemma2With27B, spec);
  spec->logit_softcap = keys.Float("final_logit_softcapping", 30);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    AttentionSpec& attention = spec->layers[l].attention;
    attention.softcap = keys.Float("attn_logit_softcapping", 50);
    attention.sliding_window = SeesAll(l, 2) ? 0 : keys.Int("attention.sliding_window", 4096);
  }
}

void ReadGemma3(const GgufFile& file, ModelSpec* spec) {
  const ArchKeys keys(file);
  ReadGemma(file, kLayersOfGemma3With27B, spec);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    AttentionSpec& attention = spec->layers[l].attention;
    attention.qk_norm = QkNorm::kHeads;
    if (SeesAll(l, 6)) {
      attention.sliding_window = 0;
    } else {
      // What stretches the context is for the layers that see all of it.
      attention.rope = RopeSpec{.layout = RopeLayout::kHalves,
                                .dims = attention.rope->dims,
                                .base = keys.Float("rope.freq_base_swa", 10000)};
    }
  }
}

}  // namespace hearth::archs
