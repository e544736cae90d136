#include "model/weights.h"

#include "base/error.h"

namespace hearth {
namespace {

std::string ShapeText(uint64_t cols, uint64_t rows, uint64_t experts) {
  std::string text = "[" + std::to_string(cols);
  if (rows != 1 || experts != 1) text += ", " + std::to_string(rows);
  if (experts != 1) text += ", " + std::to_string(experts);
  return text + "]";
}

// Collects the declarations of one layer, adding its name prefix.
class LayerDeclarer {
 public:
  LayerDeclarer(int64_t layer, std::vector<WeightDecl>* out)
      : prefix_("blk." + std::to_string(layer) + "."), out_(out) {}

  void Matrix(const char* name, int64_t cols, int64_t rows, WeightView* slot, int64_t experts = 1) {
    WeightDecl decl{.name = prefix_ + name + ".weight", .cols = cols, .rows = rows};
    decl.experts = experts;
    decl.slot = slot;
    out_->push_back(std::move(decl));
  }
  void Vector(const char* name, const char* suffix, int64_t cols, WeightView* slot) {
    WeightDecl decl{.name = prefix_ + name + suffix, .cols = cols};
    decl.is_vector = true;
    decl.slot = slot;
    out_->push_back(std::move(decl));
  }

 private:
  std::string prefix_;
  std::vector<WeightDecl>* out_;
};

void DeclareAttention(const AttentionSpec& spec, int64_t hidden, LayerWeights& w,
                      LayerDeclarer& declare) {
  const int64_t q = spec.num_heads * spec.head_dim;
  const int64_t kv = spec.num_kv_heads * spec.head_dim;
  declare.Vector("attn_norm", ".weight", hidden, &w.attn_norm);
  declare.Matrix("attn_q", hidden, q, &w.attn_q);
  declare.Matrix("attn_k", hidden, kv, &w.attn_k);
  declare.Matrix("attn_v", hidden, kv, &w.attn_v);
  if (spec.qkv_bias) {
    declare.Vector("attn_q", ".bias", q, &w.attn_q_bias);
    declare.Vector("attn_k", ".bias", kv, &w.attn_k_bias);
    declare.Vector("attn_v", ".bias", kv, &w.attn_v_bias);
  }
  if (spec.qk_norm) {
    declare.Vector("attn_q_norm", ".weight", spec.head_dim, &w.attn_q_norm);
    declare.Vector("attn_k_norm", ".weight", spec.head_dim, &w.attn_k_norm);
  }
  declare.Matrix("attn_output", q, hidden, &w.attn_output);
  if (spec.output_bias) declare.Vector("attn_output", ".bias", hidden, &w.attn_output_bias);
}

void DeclareFfn(const FfnSpec& spec, int64_t hidden, FfnStorage storage, LayerWeights& w,
                LayerDeclarer& declare) {
  const int64_t ffn = spec.intermediate_size;
  declare.Vector("ffn_norm", ".weight", hidden, &w.ffn_norm);
  if (spec.num_experts > 0) {
    declare.Matrix("ffn_gate_inp", hidden, spec.num_experts, &w.ffn_router);
  }
  if (storage == FfnStorage::kBundles) return;
  if (spec.num_experts == 0) {
    declare.Matrix("ffn_gate", hidden, ffn, &w.ffn_gate);
    declare.Matrix("ffn_up", hidden, ffn, &w.ffn_up);
    declare.Matrix("ffn_down", ffn, hidden, &w.ffn_down);
    return;
  }
  declare.Matrix("ffn_gate_exps", hidden, ffn, &w.ffn_gate, spec.num_experts);
  declare.Matrix("ffn_up_exps", hidden, ffn, &w.ffn_up, spec.num_experts);
  declare.Matrix("ffn_down_exps", ffn, hidden, &w.ffn_down, spec.num_experts);
}

}  // namespace

std::vector<WeightDecl> DeclareWeights(const ModelSpec& spec, ModelWeights& weights,
                                       FfnStorage ffn) {
  std::vector<WeightDecl> out;
  const int64_t hidden = spec.hidden_size;
  WeightDecl embedding{.name = "token_embd.weight", .cols = hidden, .rows = spec.vocab_size};
  embedding.is_embedding = !spec.tied_embeddings;
  embedding.slot = &weights.token_embedding;
  out.push_back(std::move(embedding));
  if (spec.rope_factors) {
    WeightDecl factors{.name = "rope_freqs.weight", .cols = spec.rope.dims / 2};
    factors.is_vector = true;
    factors.slot = &weights.rope_factors;
    out.push_back(std::move(factors));
  }
  weights.layers.assign(static_cast<size_t>(spec.num_layers), {});
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    LayerDeclarer declare(l, &out);
    LayerWeights& w = weights.layers[static_cast<size_t>(l)];
    const LayerSpec& layer = spec.layers[static_cast<size_t>(l)];
    DeclareAttention(layer.attention, hidden, w, declare);
    DeclareFfn(layer.ffn, hidden, ffn, w, declare);
  }
  WeightDecl norm{.name = "output_norm.weight", .cols = hidden};
  norm.is_vector = true;
  norm.slot = &weights.output_norm;
  out.push_back(std::move(norm));
  if (!spec.tied_embeddings) {
    WeightDecl output{.name = "output.weight", .cols = hidden, .rows = spec.vocab_size};
    output.slot = &weights.output;
    out.push_back(std::move(output));
  }
  return out;
}

const GgufTensor& MatchTensor(const GgufFile& file, const WeightDecl& decl) {
  const GgufTensor& tensor = file.GetTensor(decl.name);
  const auto cols = static_cast<uint64_t>(decl.cols);
  const auto rows = static_cast<uint64_t>(decl.rows);
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
