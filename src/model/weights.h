// The weights of a model by role, as views; and the inventory that says which tensors a spec
// needs, under which names and in which shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "model/model_spec.h"
#include "tensor/view.h"

namespace hearth {

enum class FfnMatrix : uint8_t { kGate, kUp, kDown };
inline constexpr size_t kNumFfnMatrices = 3;

// Views into memory that the loader owns. An absent optional tensor is an empty view.
// Norm weights and biases are F32 rows; matrices are [rows = output][cols = input].
struct LayerWeights {
  WeightView attn_norm;    // [hidden]
  WeightView attn_q;       // [heads * head_dim][hidden]
  WeightView attn_k;       // [kv_heads * head_dim][hidden]
  WeightView attn_v;       // [kv_heads * head_dim][hidden]
  WeightView attn_output;  // [hidden][heads * head_dim]
  WeightView attn_q_bias;
  WeightView attn_k_bias;
  WeightView attn_v_bias;
  WeightView attn_output_bias;
  WeightView attn_q_norm;      // [head_dim], or of all heads
  WeightView attn_k_norm;      // [head_dim], or of all heads
  WeightView attn_sinks;       // [heads]
  WeightView attn_after_norm;  // [hidden]; GGUF post_attention_norm
  WeightView ffn_norm;         // [hidden]
  WeightView attn_norm_bias;   // [hidden], of LayerNorm
  WeightView ffn_norm_bias;    // [hidden]
  WeightView ffn_after_norm;   // [hidden]; GGUF post_ffw_norm
  WeightView ffn_router;       // [experts][hidden]; GGUF ffn_gate_inp
  WeightView router_bias;      // [experts]
  WeightView choice_bias;      // [experts]; GGUF exp_probs_b
  WeightView shared_router;    // [hidden]; GGUF ffn_gate_inp_shexp
  WeightView shared_gate;      // [shared intermediate][hidden]; GGUF ffn_gate_shexp
  WeightView shared_up;        // [shared intermediate][hidden]
  WeightView shared_down;      // [hidden][shared intermediate]
  // An FFN is three matrices, or two (up and down), or, in a packed file, rows of single neurons
  // (docs/formats/bundle.md), where the first of two matrices is the gate; these have types and
  // shapes but no data where the FFNs are not all in memory (pipeline/streamed_ffns.h).
  WeightView ffn_gate;  // [experts or 1][intermediate][hidden]
  WeightView ffn_up;    // [experts or 1][intermediate][hidden]
  WeightView ffn_down;  // [experts or 1][hidden][intermediate]
  // By expert, which of these three's experts it is, and -1 of one that lies on a device; empty:
  // all are here.
  std::vector<int32_t> expert_places;
  WeightView ffn_gate_bias, ffn_up_bias;  // [experts or 1][intermediate]
  WeightView ffn_down_bias;               // [experts or 1][hidden]
  RowsView gate_rows;                     // [experts or 1][intermediate][hidden]
  RowsView up_rows;                       // [experts or 1][intermediate][hidden]
  RowsView down_rows;                     // [experts or 1][intermediate][hidden]: columns of down

  int64_t PlaceOf(int64_t expert) const {
    return expert_places.empty() ? expert : expert_places[static_cast<size_t>(expert)];
  }
  bool has_rows() const { return gate_rows.rows > 0; }
  const WeightView& Matrix(FfnMatrix which) const {
    return which == FfnMatrix::kGate ? ffn_gate : which == FfnMatrix::kUp ? ffn_up : ffn_down;
  }
  const WeightView& Bias(FfnMatrix which) const {
    return which == FfnMatrix::kGate ? ffn_gate_bias
           : which == FfnMatrix::kUp ? ffn_up_bias
                                     : ffn_down_bias;
  }
};

struct ModelWeights {
  WeightView token_embedding;     // [vocab][hidden]
  WeightView position_embedding;  // [positions][hidden]
  WeightView output_norm;         // [hidden]
  WeightView output_norm_bias;    // [hidden], of LayerNorm
  WeightView output;              // [vocab][hidden]; the embedding itself where tied
  WeightView output_bias;         // [vocab]
  WeightView rope_factors;        // [rope dims / 2]; of LongRoPE for short contexts
  WeightView long_rope_factors;   // [rope dims / 2]; of LongRoPE for others
  std::vector<LayerWeights> layers;

  // Of the layer that MainFfn describes.
  const LayerWeights& main_layer() const { return layers.back(); }
  bool ffns_have_rows() const { return main_layer().has_rows(); }
};

// One matrix or vector that a model needs: a tensor of the file, or, where families keep several in
// one tensor, its part of that. Parts of a matrix are rows of it, those of a vector numbers.
struct WeightDecl {
  std::string name;  // of the tensor, GGUF's, e.g. "blk.3.attn_q.weight"
  int64_t cols = 0;  // GGUF ne[0]
  int64_t rows = 1;
  int64_t experts = 1;
  int64_t first = 0;           // row of each expert's, or number of a vector, that it begins with
  int64_t of = 0;              // rows, or numbers, of the tensor; 0: it is the whole tensor
  bool is_vector = false;      // norms, biases, factors: kept in F32
  bool is_embedding = false;   // only looked up by row, never multiplied
  WeightView* slot = nullptr;  // where the loader puts it
};

// What bundles of these FFNs have.
BundleKind BundleKindOf(const FfnSpec& ffn);

// How a file holds FFNs: as matrices, or as bundles, which are no matrices and not declared here.
enum class FfnStorage : uint8_t { kMatrices, kBundles };

// Every matrix and vector that `spec` needs, in the order of use; slots point into `weights`, whose
// layers are resized to fit and which must not move afterwards.
std::vector<WeightDecl> DeclareWeights(const ModelSpec& spec, ModelWeights& weights,
                                       FfnStorage ffn = FfnStorage::kMatrices);

// The tensor of the file that a declaration names. Throws Error(kNotFound) where it is missing
// and Error(kCorrupt), naming the tensor, where its shape is another.
const GgufTensor& MatchTensor(const GgufFile& file, const WeightDecl& decl);

}  // namespace hearth
