#include "prepare/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

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
} kActivations[] = {{"silu", "silu"},
                    {"swish", "silu"},
                    {"relu", "relu"},
                    {"fatrelu", "fatrelu"},
                    {"drelu", "drelu"}};

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

// Refuses settings that change what the model computes and that GGUF's keys do not carry.
void RefuseVariants(const PublishedJson& config, bool has_experts) {
  const auto refuse = [&](const char* key, const char* expected) {
    throw Unsupported(config, key, expected, config.Find(key)->dump());
  };
  if (config.Has("quantization_config")) refuse("quantization_config", "float weights");
  if (config.Float("partial_rotary_factor", 1) != 1) refuse("partial_rotary_factor", "1");
  if (config.Bool("mlp_bias", false)) refuse("mlp_bias", "false");
  if (config.Bool("use_sliding_window", false)) refuse("use_sliding_window", "false");
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
    ReadRope();
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

  // Newer files have an object of everything about RoPE, older ones a base and what stretches it.
  void ReadRope() {
    const bool is_new = config_.Has("rope_parameters");
    const PublishedJson rope = config_.Object(is_new ? "rope_parameters" : "rope_scaling");
    const double base = rope.Float("rope_theta", config_.Float("rope_theta", 10000));
    SetFloat("rope.freq_base", base);
    Set("rope.dimension_count", out_.head_dim);
    const std::string type = rope.Text("rope_type", rope.Text("type", "default"));
    if (type == "default") return;
    const double factor = rope.Float("factor", 1);
    if (type == "llama3") return ReadLlama3Factors(rope, base, factor);
    if (type != "linear" && type != "yarn") {
      throw Unsupported(rope, "rope_type", "default, linear, yarn or llama3", "'" + type + "'");
    }
    out_.metadata.SetString(prefix_ + "rope.scaling.type", type);
    SetFloat("rope.scaling.factor", factor);
    if (type == "linear") return;
    Set("rope.scaling.original_context_length",
        rope.Int("original_max_position_embeddings", config_.Int("max_position_embeddings")));
    SetFloat("rope.scaling.yarn_beta_fast", rope.Float("beta_fast", 32));
    SetFloat("rope.scaling.yarn_beta_slow", rope.Float("beta_slow", 1));
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      if (rope.Has(key)) throw Unsupported(rope, key, "nothing", rope.Find(key)->dump());
    }
    if (rope.Has("attention_factor") && factor > 0) {
      // GGUF's key multiplies YaRN's own factor, the published one replaces it.
      SetFloat("rope.scaling.yarn_attn_factor",
               rope.Float("attention_factor", 1) / (0.1 * std::log(factor) + 1));
    }
  }

  // What frequencies are divided by: 1 where they turn often in the original context, `factor`
  // where they hardly turn, and mixed frequencies between.
  void ReadLlama3Factors(const PublishedJson& rope, double base, double factor) {
    const double low = rope.Float("low_freq_factor", 1);
    const double high = rope.Float("high_freq_factor", 4);
    const auto context = static_cast<double>(rope.Int("original_max_position_embeddings"));
    if (!(factor > 0) || !(high > low)) {
      throw Error(ErrorCode::kCorrupt, rope.path(), "factors",
                  "a positive factor and low_freq_factor < high_freq_factor", "others");
    }
    for (int64_t i = 0; i + 1 < out_.head_dim; i += 2) {
      const double wavelength =
          2 * std::numbers::pi *
          std::pow(base, static_cast<double>(i) / static_cast<double>(out_.head_dim));
      const double kept = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
      out_.rope_factors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
    }
  }

  void ReadActivation() {
    const std::string published = out_.family->activation != nullptr
                                      ? out_.family->activation
                                      : config_.Text("hidden_act", "silu");
    const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                     [&](const auto& a) { return published == a.published; });
    if (found == std::end(kActivations)) {
      throw Unsupported(config_, "hidden_act", "silu, relu, fatrelu or drelu",
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
