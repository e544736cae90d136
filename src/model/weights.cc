#include "model/weights.h"

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

std::string ShapeText(uint64_t cols, uint64_t rows, uint64_t experts) {
  std::string text = "[" + std::to_string(cols);
  if (rows != 1 || experts != 1) text += ", " + std::to_string(rows);
  if (experts != 1) text += ", " + std::to_string(experts);
  return text + "]";
}

// A part of a tensor that holds several matrices or vectors in sequence.
struct Part {
  int64_t first = 0;
  int64_t of = 0;
};

// Collects the declarations of one layer, adding its name prefix.
class LayerDeclarer {
 public:
  LayerDeclarer(int64_t layer, std::vector<WeightDecl>* out)
      : prefix_("blk." + std::to_string(layer) + "."), out_(out) {}

  void Matrix(const char* name, int64_t cols, int64_t rows, WeightView* slot, int64_t experts = 1,
              Part part = {}) {
    WeightDecl decl{.name = prefix_ + name + ".weight", .cols = cols, .rows = rows};
    decl.experts = experts;
    decl.first = part.first;
    decl.of = part.of;
    decl.slot = slot;
    out_->push_back(std::move(decl));
  }
  // rows: experts whose biases the tensor holds, one row each.
  void Vector(const char* name, const char* suffix, int64_t cols, WeightView* slot, Part part = {},
              int64_t rows = 1) {
    WeightDecl decl{.name = prefix_ + name + suffix, .cols = cols, .rows = rows};
    decl.first = part.first;
    decl.of = part.of;
    decl.is_vector = true;
    decl.slot = slot;
    out_->push_back(std::move(decl));
  }

 private:
  std::string prefix_;
  std::vector<WeightDecl>* out_;
};

void DeclareNorm(const LayerSpec& layer, const char* name, int64_t hidden, WeightView* weight,
                 WeightView* bias, LayerDeclarer& declare) {
  declare.Vector(name, ".weight", hidden, weight);
  if (layer.norm == NormKind::kLayer) declare.Vector(name, ".bias", hidden, bias);
}

void DeclareQkv(const AttentionSpec& spec, int64_t hidden, LayerWeights& w,
                LayerDeclarer& declare) {
  const int64_t q = spec.num_heads * spec.head_dim;
  const int64_t kv = spec.num_kv_heads * spec.head_dim;
  struct Projection {
    const char* name;
    int64_t rows;
    int64_t first;
    WeightView* weight;
    WeightView* bias;
  };
  const Projection all[] = {{"attn_q", q, 0, &w.attn_q, &w.attn_q_bias},
                            {"attn_k", kv, q, &w.attn_k, &w.attn_k_bias},
                            {"attn_v", kv, q + kv, &w.attn_v, &w.attn_v_bias}};
  for (const auto& [name, rows, first, weight, bias] : all) {
    const Part part = spec.fused_qkv ? Part{first, q + 2 * kv} : Part{};
    const char* const stored = spec.fused_qkv ? "attn_qkv" : name;
    declare.Matrix(stored, hidden, rows, weight, 1, part);
    if (spec.qkv_bias) declare.Vector(stored, ".bias", rows, bias, part);
  }
  if (spec.qk_norm == QkNorm::kNone) return;
  const bool is_of_head = spec.qk_norm == QkNorm::kHeads;
  declare.Vector("attn_q_norm", ".weight", is_of_head ? spec.head_dim : q, &w.attn_q_norm);
  declare.Vector("attn_k_norm", ".weight", is_of_head ? spec.head_dim : kv, &w.attn_k_norm);
}

void DeclareAttention(const LayerSpec& layer, int64_t hidden, LayerWeights& w,
                      LayerDeclarer& declare) {
  const AttentionSpec& spec = layer.attention;
  if (layer.norm_before) {
    DeclareNorm(layer, layer.attention_norm_name, hidden, &w.attn_norm, &w.attn_norm_bias, declare);
  }
  DeclareQkv(spec, hidden, w, declare);
  declare.Matrix("attn_output", spec.num_heads * spec.head_dim, hidden, &w.attn_output);
  if (spec.sinks) declare.Vector("attn_sinks", ".weight", spec.num_heads, &w.attn_sinks);
  if (spec.output_bias) declare.Vector("attn_output", ".bias", hidden, &w.attn_output_bias);
  if (layer.norm_after) {
    declare.Vector("post_attention_norm", ".weight", hidden, &w.attn_after_norm);
  }
}

void DeclareSharedExpert(const FfnSpec& spec, int64_t hidden, LayerWeights& w,
                         LayerDeclarer& declare) {
  const int64_t ffn = spec.shared_intermediate_size;
  if (ffn == 0) return;
  if (spec.shared_gate) {
    declare.Vector("ffn_gate_inp_shexp", ".weight", hidden, &w.shared_router);
  }
  declare.Matrix("ffn_gate_shexp", hidden, ffn, &w.shared_gate);
  declare.Matrix("ffn_up_shexp", hidden, ffn, &w.shared_up);
  declare.Matrix("ffn_down_shexp", ffn, hidden, &w.shared_down);
}

void DeclareFfn(const LayerSpec& layer, int64_t hidden, FfnStorage storage, LayerWeights& w,
                LayerDeclarer& declare) {
  const FfnSpec& spec = layer.ffn;
  const int64_t ffn = spec.intermediate_size;
  if (layer.norm_before) {
    DeclareNorm(layer, layer.ffn_norm_name, hidden, &w.ffn_norm, &w.ffn_norm_bias, declare);
  }
  if (layer.norm_after) declare.Vector("post_ffw_norm", ".weight", hidden, &w.ffn_after_norm);
  const bool is_mixture = spec.num_experts > 0;
  if (is_mixture) declare.Matrix("ffn_gate_inp", hidden, spec.num_experts, &w.ffn_router);
  if (spec.router_bias) declare.Vector("ffn_gate_inp", ".bias", spec.num_experts, &w.router_bias);
  if (spec.choice_bias) declare.Vector("exp_probs_b", ".bias", spec.num_experts, &w.choice_bias);
  DeclareSharedExpert(spec, hidden, w, declare);
  const int64_t experts = is_mixture ? spec.num_experts : 1;
  const char* const down = is_mixture ? "ffn_down_exps" : "ffn_down";
  if (spec.bias) declare.Vector(down, ".bias", hidden, &w.ffn_down_bias, {}, experts);
  if (storage == FfnStorage::kBundles) return;
  const char* const fused = is_mixture ? "ffn_gate_up_exps" : "ffn_up";
  const Part gate = spec.fused_gate_up ? Part{0, 2 * ffn} : Part{};
  const Part up = spec.fused_gate_up ? Part{ffn, 2 * ffn} : Part{};
  const auto stored = [&](const char* of_one, const char* of_many) {
    return spec.fused_gate_up ? fused : is_mixture ? of_many : of_one;
  };
  const bool is_gated = spec.kind == FfnKind::kGated;
  if (is_gated) {
    declare.Matrix(stored("ffn_gate", "ffn_gate_exps"), hidden, ffn, &w.ffn_gate, experts, gate);
  }
  declare.Matrix(stored("ffn_up", "ffn_up_exps"), hidden, ffn, &w.ffn_up, experts, up);
  declare.Matrix(down, ffn, hidden, &w.ffn_down, experts);
  if (!spec.bias) return;
  if (is_gated) {
    declare.Vector(stored("ffn_gate", "ffn_gate_exps"), ".bias", ffn, &w.ffn_gate_bias, gate,
                   experts);
  }
  declare.Vector(stored("ffn_up", "ffn_up_exps"), ".bias", ffn, &w.ffn_up_bias, up, experts);
}

// The factors that the model's rotary embeddings divide frequencies by.
void DeclareRopeFactors(const ModelSpec& spec, ModelWeights& w, std::vector<WeightDecl>& out) {
  int64_t pairs = 0, long_pairs = 0;
  for (const RopeSpec& rope : RopesOf(spec)) {
    if (rope.has_factors) pairs = std::max(pairs, rope.dims / 2);
    if (rope.scaling == RopeScalingKind::kLong) long_pairs = std::max(long_pairs, rope.dims / 2);
  }
  const auto declare = [&](const char* name, int64_t count, WeightView* slot) {
    if (count == 0) return;
    WeightDecl factors{.name = name, .cols = count};
    factors.is_vector = true;
    factors.slot = slot;
    out.push_back(std::move(factors));
  };
  declare("rope_freqs.weight", pairs, &w.rope_factors);
  declare("rope_factors_short.weight", long_pairs, &w.rope_factors);
  declare("rope_factors_long.weight", long_pairs, &w.long_rope_factors);
}

}  // namespace

BundleKind BundleKindOf(const FfnSpec& ffn) {
  const bool is_gated = ffn.kind == FfnKind::kGated;
  return {.is_gated = is_gated, .has_bias = !is_gated && ffn.bias};
}

std::vector<WeightDecl> DeclareWeights(const ModelSpec& spec, ModelWeights& weights,
                                       FfnStorage ffn) {
  std::vector<WeightDecl> out;
  const int64_t hidden = spec.hidden_size;
  WeightDecl embedding{.name = "token_embd.weight", .cols = hidden, .rows = spec.vocab_size};
  embedding.is_embedding = !spec.tied_embeddings;
  embedding.slot = &weights.token_embedding;
  out.push_back(std::move(embedding));
  if (spec.positions == PositionKind::kLearned) {
    WeightDecl positions{.name = "position_embd.weight", .cols = hidden};
    positions.rows = spec.context_length + spec.position_offset;
    positions.is_vector = true;
    positions.slot = &weights.position_embedding;
    out.push_back(std::move(positions));
  }
  DeclareRopeFactors(spec, weights, out);
  weights.layers.assign(static_cast<size_t>(spec.num_layers), {});
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    LayerDeclarer declare(l, &out);
    LayerWeights& w = weights.layers[static_cast<size_t>(l)];
    const LayerSpec& layer = spec.layers[static_cast<size_t>(l)];
    DeclareAttention(layer, hidden, w, declare);
    DeclareFfn(layer, hidden, ffn, w, declare);
  }
  const auto declare_vector = [&](const char* name, int64_t cols, WeightView* slot) {
    WeightDecl vector{.name = name, .cols = cols};
    vector.is_vector = true;
    vector.slot = slot;
    out.push_back(std::move(vector));
  };
  declare_vector("output_norm.weight", hidden, &weights.output_norm);
  if (spec.layers.back().norm == NormKind::kLayer) {
    declare_vector("output_norm.bias", hidden, &weights.output_norm_bias);
  }
  if (spec.output_bias) declare_vector("output.bias", spec.vocab_size, &weights.output_bias);
  if (!spec.tied_embeddings) {
    WeightDecl output{.name = "output.weight", .cols = hidden, .rows = spec.vocab_size};
    output.slot = &weights.output;
    out.push_back(std::move(output));
  }
  return out;
}

const GgufTensor& MatchTensor(const GgufFile& file, const WeightDecl& decl) {
  const GgufTensor& tensor = file.GetTensor(decl.name);
  const bool is_part = decl.of > 0;
  const auto cols = static_cast<uint64_t>(is_part && decl.is_vector ? decl.of : decl.cols);
  const auto rows = static_cast<uint64_t>(is_part && !decl.is_vector ? decl.of : decl.rows);
  const auto experts = static_cast<uint64_t>(decl.experts);
  if (tensor.ne[0] != cols || tensor.ne[1] != rows || tensor.ne[2] != experts ||
      tensor.ne[3] != 1) {
    throw Error(ErrorCode::kCorrupt, file.path(), "shape of " + decl.name,
                ShapeText(cols, rows, experts),
                ShapeText(tensor.ne[0], tensor.ne[1], tensor.ne[2] * tensor.ne[3]));
  }
  const bool is_float =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  if (decl.is_vector && !is_float) {
    throw Error(ErrorCode::kUnsupported, file.path(), "type of " + decl.name, "F32, F16 or BF16",
                NameOf(tensor.dtype));
  }
  return tensor;
}

}  // namespace hearth
