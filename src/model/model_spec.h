// What a model is, as plain data: everything the engine needs to know to run it, nothing about
// how. One architecture file (archs/) fills it from a GGUF's metadata; no other code asks which
// architecture it has before it.
//
// Sizes use Hugging Face's words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/op_kinds.h"

namespace hearth {

// kLayer: LayerNorm, with biases.
enum class NormKind : uint8_t { kRms, kLayer };
enum class PositionKind : uint8_t { kRope, kLearned };
enum class FfnKind : uint8_t { kGated, kTwoMatrix };

// What a router makes of its products, one per expert: shares of all experts, or of each by itself.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

// How an embedding of a text is made of the last hidden states of its tokens: their mean, or that
// of one token. kNone: the model makes none.
enum class PoolingKind : uint8_t { kMean, kFirst, kLast, kNone };

// kLong: frequencies are divided by factors of the file, of which it has two sets: for contexts up
// to the original one and beyond (LongRoPE, Ding et al. 2024).
enum class RopeScalingKind : uint8_t { kNone, kLinear, kYarn, kLong };

// Rotary position embeddings. Llama 3's scaling is not a kind: such files carry a tensor of
// factors (`rope_freqs.weight`) that the frequencies are divided by.
struct RopeSpec {
  RopeLayout layout = RopeLayout::kAdjacent;
  int64_t dims = 0;  // rotated components of a head, even, <= head_dim
  double base = 10000;
  RopeScalingKind scaling = RopeScalingKind::kNone;
  double factor = 1;             // context extension
  int64_t original_context = 0;  // tokens the model was first trained on (YaRN, LongRoPE)
  double yarn_beta_fast = 32;    // rotations over which YaRN leaves a frequency alone
  double yarn_beta_slow = 1;     // and under which it interpolates fully
  bool yarn_whole_ramp = true;   // YaRN's ramp begins and ends at whole numbers of a pair
  double attention_factor = 1;   // multiplies cos and sin
  bool has_factors = false;      // the file's rope_freqs.weight applies

  bool operator==(const RopeSpec&) const = default;
};

// Which queries and keys an RMS norm makes alike before they are rotated: every head by itself
// (Qwen3, Gemma 3), or all heads of a token together (OLMo 2).
enum class QkNorm : uint8_t { kNone, kHeads, kAllHeads };

struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads (GQA)
  int64_t head_dim = 0;
  int64_t sliding_window = 0;  // tokens a query sees, itself included; 0: all
  double query_scale = 0;      // 1/sqrt(head_dim) unless the architecture says otherwise
  // Queries at position p are multiplied by 1 + temperature_scale * ln(1 + floor(p / period)).
  double temperature_scale = 0;    // 0: by nothing
  int64_t temperature_period = 0;  // tokens
  double softcap = 0;              // scores s become softcap * tanh(s / softcap); 0: they stay
  std::optional<RopeSpec> rope = RopeSpec{};  // nothing: the layer rotates nothing
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool sinks = false;      // the softmax has one more score for each head, with no value
  bool fused_qkv = false;  // the file has q, k and v in one matrix, attn_qkv
};

struct FfnSpec {
  FfnKind kind = FfnKind::kGated;
  FfnActivation activation = FfnActivation::kSilu;
  float threshold = 0;  // kFatRelu, kThresholdedSilu, kClampedSwiglu
  int64_t intermediate_size = 0;
  bool bias = false;
  bool fused_gate_up = false;  // the file has gate and up in one matrix, under the name of up
  int64_t num_experts = 0;     // 0: one dense FFN
  int64_t num_experts_per_token = 0;
  // The router reads what the layer begins with, before attention and as it is, and not what the
  // experts read. Needs experts.
  bool routes_before_attention = false;
  RouterScore router_score = RouterScore::kSoftmax;
  bool router_bias = false;  // added to the router's products
  // Added to scores where experts are chosen, and not where they are weighed.
  bool choice_bias = false;
  // Experts are chosen from the groups whose two best scores have the largest sums.
  int64_t num_expert_groups = 1;
  int64_t num_groups_per_token = 1;
  bool normalize_expert_weights = true;  // the chosen experts' weights sum to 1
  double expert_weight_scale = 1;
  // Neurons of an FFN that runs for every token beside the experts; 0: there is none. With a gate,
  // its result is weighed by a sigmoid of the token.
  int64_t shared_intermediate_size = 0;
  bool shared_gate = false;
};

// What a layer adds to the residual stream: for attention and FFN alike
// residual_scale * norm_after(block(norm_before(hidden))).
struct LayerSpec {
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5f;
  bool norm_before = true;
  bool norm_after = false;
  const char* attention_norm_name = "attn_norm";  // what the file calls the norm before attention
  const char* ffn_norm_name = "ffn_norm";         // what the file calls the norm before the FFN
  double residual_scale = 1;
  bool parallel_attention = false;  // attention and FFN read the same residual stream
  AttentionSpec attention;
  FfnSpec ffn;
};

struct ModelSpec {
  std::string architecture;  // as in the file: "llama", "qwen3moe"
  std::string name;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // longest the model was made for
  PositionKind positions = PositionKind::kRope;
  int64_t position_offset = 0;   // kLearned: the row of the first position
  bool tied_embeddings = false;  // the output matrix is the token embedding
  bool output_bias = false;      // added to logits, before they are scaled
  double embedding_scale = 1;    // multiplies what the embedding gives
  double logit_scale = 1;        // multiplies logits, before their softcap
  double logit_softcap = 0;      // as AttentionSpec::softcap
  PoolingKind pooling = PoolingKind::kMean;
  std::vector<LayerSpec> layers;  // num_layers entries
  // Further layers of the file, which guess tokens after the next one. Hearth does not run them.
  int64_t guessing_layers = 0;
};

// The FFN of most layers, which stands for all where one figure is asked for: in models whose first
// layers have no experts it is that of the others.
inline const FfnSpec& MainFfn(const ModelSpec& spec) { return spec.layers.back().ffn; }

// Whether the FFNs of all layers have one shape.
bool HasEqualFfns(const ModelSpec& spec);

// The rotary embeddings of a model's layers, each once, in the order in which they come first.
std::vector<RopeSpec> RopesOf(const ModelSpec& spec);

// Makes the FFNs of a SiLU model leave out neurons whose |silu(gate)| is at most its layer's
// threshold (P1 §8.4). Throws Error(kInvalidArgument) for a model with another activation,
// and unless there is one threshold per layer, each finite and not negative.
void ThresholdSilu(std::span<const float> thresholds, ModelSpec* spec);

// The same facts as invariants: throws Error(kCorrupt), naming `file` and the field, where sizes
// are zero, absurd or do not divide as they must.
void ValidateSpec(const ModelSpec& spec, const std::string& file);

}  // namespace hearth
