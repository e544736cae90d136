#include "prepare/import/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "prepare/import/hugging_face_rope.h"

namespace hearth {
namespace {

// Far beyond any model; bounds what a hostile file makes us allocate.
constexpr int64_t kMaxHeadDim = 1 << 16;

constexpr PublishedFamily kFamilies[] = {
    {"llama", "llama", true, nullptr, nullptr, nullptr, {}},
    {"mistral", "llama", true, nullptr, nullptr, nullptr, {}},
    {"bamboo", "llama", true, "drelu", nullptr, nullptr, {}},
    {"mixtral",
     "llama",
     true,
     nullptr,
     "block_sparse_moe.gate",
     "block_sparse_moe.experts",
     {"w1", "w3", "w2"}},
    {"qwen2", "qwen2", false, nullptr, nullptr, nullptr, {}},
    {"qwen3", "qwen3", false, nullptr, nullptr, nullptr, {}},
    {"qwen3_moe",
     "qwen3moe",
     false,
     nullptr,
     "mlp.gate",
     "mlp.experts",
     {"gate_proj", "up_proj", "down_proj"},
     false},
};

constexpr struct {
  const char* published;
  const char* name;
} kActivations[] = {{"silu", "silu"},       {"swish", "silu"},    {"gelu_pytorch_tanh", "gelu"},
                    {"gelu_new", "gelu"},   {"gelu", "gelu_erf"}, {"relu", "relu"},
                    {"fatrelu", "fatrelu"}, {"drelu", "drelu"}};

Error Unsupported(const PublishedJson& json, const std::string& what, const std::string& expected,
                  const std::string& found) {
  return Error(ErrorCode::kUnsupported, json.path(), what, expected, Printable(found));
}

const PublishedFamily& FindFamily(const PublishedJson& config) {
  const std::string type = config.Text("model_type", "");
  std::string known;
  for (const PublishedFamily& family : kFamilies) {
    if (type == family.model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  throw Unsupported(config, "model_type", "one of " + known, "'" + type + "'");
}

// Layers of several kinds: windows where there is none to use are none.
void RefuseMixedLayers(const PublishedJson& config) {
  const auto* types = config.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) {
    throw Error(ErrorCode::kCorrupt, config.path(), "layer_types", "a list", types->type_name());
  }
  const bool has_window =
      config.Int("sliding_window", 0) > 0 && config.Bool("use_sliding_window", true);
  const auto refuse = [&](const std::string& found) {
    throw Unsupported(config, "layer_types", "the same attention in every layer", found);
  };
  const bool has_full = std::count(types->begin(), types->end(), "full_attention") > 0;
  for (const auto& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") refuse(type.dump());
    const bool is_sliding = type == "sliding_attention";
    if (is_sliding && has_full && has_window) refuse("full_attention and sliding_attention");
  }
}

// Refuses settings that change what the model computes and that GGUF's keys do not carry.
void RefuseVariants(const PublishedJson& config, bool has_experts) {
  const auto refuse = [&](const char* key, const char* expected) {
    throw Unsupported(config, key, expected, config.Find(key)->dump());
  };
  if (config.Has("quantization_config")) refuse("quantization_config", "float weights");
  if (config.Bool("mlp_bias", false)) refuse("mlp_bias", "false");
  if (config.Bool("use_sliding_window", false)) refuse("use_sliding_window", "false");
  RefuseMixedLayers(config);
  if (!has_experts) return;
  if (config.Int("decoder_sparse_step", 1) != 1) refuse("decoder_sparse_step", "1");
  const auto* dense = config.Find("mlp_only_layers");
  if (dense != nullptr && !dense->empty()) refuse("mlp_only_layers", "none");
}

class ConfigReader {
 public:
  ConfigReader(const PublishedJson& config, const std::string& model_name) : config_(config) {
    out_.family = &FindFamily(config);
    out_.metadata.SetString("general.architecture", out_.family->architecture);
    out_.metadata.SetString("general.name", model_name);
    prefix_ = std::string(out_.family->architecture) + ".";
  }

  PublishedConfig Read() {
    const bool has_experts = out_.family->router != nullptr;
    RefuseVariants(config_, has_experts);
    out_.hidden_size = config_.Int("hidden_size");
    out_.num_layers = config_.Int("num_hidden_layers");
    out_.tied_embeddings = config_.Bool("tie_word_embeddings", false);
    Set("embedding_length", out_.hidden_size);
    Set("block_count", out_.num_layers);
    Set("context_length", config_.Int("max_position_embeddings"));
    Set("feed_forward_length", config_.Int("intermediate_size"));
    SetFloat("attention.layer_norm_rms_epsilon", config_.Float("rms_norm_eps", 1e-6));
    ReadAttention();
    Set("rope.dimension_count", out_.head_dim);
    out_.rope_factors = SetPublishedRope(config_, prefix_, out_.head_dim, &out_.metadata);
    ReadActivation();
    if (has_experts) ReadExperts();
    return std::move(out_);
  }

 private:
  void Set(const char* key, int64_t value) {
    out_.metadata.SetUint32(prefix_ + key, static_cast<uint32_t>(value));
  }
  void SetFloat(const char* key, double value) {
    out_.metadata.SetFloat32(prefix_ + key, static_cast<float>(value));
  }

  void ReadAttention() {
    out_.num_heads = config_.Int("num_attention_heads");
    out_.num_kv_heads = config_.Int("num_key_value_heads", out_.num_heads);
    if (out_.num_heads < 1 || out_.num_kv_heads < 1) {
      throw Error(ErrorCode::kCorrupt, config_.path(), "heads", "at least 1", "0");
    }
    out_.head_dim = config_.Int("head_dim", out_.hidden_size / out_.num_heads);
    if (out_.head_dim < 1 || out_.head_dim > kMaxHeadDim) {
      throw Error(ErrorCode::kCorrupt, config_.path(), "head_dim",
                  fmt::format("1 to {}", kMaxHeadDim), std::to_string(out_.head_dim));
    }
    Set("attention.head_count", out_.num_heads);
    Set("attention.head_count_kv", out_.num_kv_heads);
    Set("attention.key_length", out_.head_dim);
    Set("attention.value_length", out_.head_dim);
    // Qwen names a window that it does not use (use_sliding_window).
    const bool has_switch = config_.Has("use_sliding_window");
    const int64_t window = has_switch ? 0 : config_.Int("sliding_window", 0);
    if (window > 0) Set("attention.sliding_window", window);
  }

  void ReadActivation() {
    const std::string published = out_.family->activation != nullptr
                                      ? out_.family->activation
                                      : config_.Text("hidden_act", "silu");
    const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const auto& a) { return published == a.published; });
    if (found == std::end(kActivations)) {
      throw Unsupported(config_, "hidden_act",
                        "silu, gelu, gelu_pytorch_tanh, relu, fatrelu or drelu",
                        "'" + published + "'");
    }
    const std::string name = found->name;
    if (name == "silu" && !config_.Has("hidden_act")) return;
    out_.metadata.SetString("hearth.ffn_activation", name);
    if (name == "fatrelu") {
      const double threshold = config_.Float("hidden_act_param", 0.01);
      out_.metadata.SetFloat32("hearth.ffn_threshold", static_cast<float>(threshold));
    }
  }

  void ReadExperts() {
    out_.num_experts = config_.Int("num_local_experts", config_.Int("num_experts", 0));
    if (out_.num_experts < 1) {
      throw Error(ErrorCode::kCorrupt, config_.path(), "experts", "at least 1", "0");
    }
    Set("expert_count", out_.num_experts);
    Set("expert_used_count", config_.Int("num_experts_per_tok"));
    if (config_.Has("moe_intermediate_size")) {
      Set("expert_feed_forward_length", config_.Int("moe_intermediate_size"));
    }
    out_.metadata.SetBool(prefix_ + "expert_weights_norm",
                          config_.Bool("norm_topk_prob", out_.family->normalizes_experts));
  }

  const PublishedJson& config_;
  std::string prefix_;
  PublishedConfig out_;
};

}  // namespace

PublishedConfig ReadPublishedConfig(const PublishedJson& config, const std::string& model_name) {
  return ConfigReader(config, model_name).Read();
}

}  // namespace hearth
