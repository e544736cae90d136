#include "import/hugging_face_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

// Far beyond any model; bounds what a hostile file makes us allocate.
constexpr int64_t kMaxHeadDim = 1 << 16;

constexpr struct {
  const char* published;
  const char* name;
} kActivations[] = {{"silu", "silu"},       {"swish", "silu"},    {"gelu_pytorch_tanh", "gelu"},
                    {"gelu_new", "gelu"},   {"gelu", "gelu_erf"}, {"relu", "relu"},
                    {"fatrelu", "fatrelu"}, {"drelu", "drelu"}};

// Models that read images, of which the part that reads text can be taken.
constexpr const char* kWithImages[] = {"gemma3", "mistral3"};

// Keys that change what some families compute, with the value, as JSON, that changes nothing.
constexpr struct {
  const char* key;
  const char* neutral;
} kVariants[] = {{"alibi", "false"},
                 {"attention_multiplier", "null"},
                 {"attn_logit_softcapping", "null"},
                 {"clip_qkv", "null"},
                 {"embedding_multiplier", "1"},
                 {"final_logit_softcapping", "null"},
                 {"first_k_dense_replace", "0"},
                 {"logits_scaling", "1"},
                 {"n_group", "1"},
                 {"no_rope_layers", "null"},
                 {"query_pre_attn_scalar", "null"},
                 {"residual_multiplier", "1"},
                 {"routed_scaling_factor", "1"},
                 {"use_bidirectional_attention", "false"},
                 {"use_qk_norm", "false"}};

Error Unsupported(const PublishedJson& json, const std::string& what, const std::string& expected,
                  const std::string& found) {
  return Error(ErrorCode::kUnsupported, json.path(), what, expected, Printable(found));
}

const PublishedFamily& FindFamily(const PublishedJson& config) {
  const std::string type = config.Text("model_type", "");
  const PublishedFamily* family = FindPublishedFamily(type);
  if (family != nullptr) return *family;
  throw Unsupported(config, "model_type", "one of " + KnownPublishedFamilies(), "'" + type + "'");
}

// null and nothing are the same.
PublishedJson WithDefaults(const PublishedJson& config, const PublishedFamily& family) {
  Json merged = Json::parse(family.defaults);
  for (const auto& [key, value] : config.json().items()) {
    if (!value.is_null()) merged[key] = value;
  }
  return {config.path(), std::move(merged)};
}

}  // namespace

PublishedJson TextPartOf(const PublishedJson& config) {
  const std::string type = config.Text("model_type", "");
  const bool has_parts =
      std::find(std::begin(kWithImages), std::end(kWithImages), type) != std::end(kWithImages);
  if (!has_parts || !config.Has("text_config")) return config;
  Json merged = config.json();
  merged.erase("text_config");
  merged.erase("model_type");
  merged.update(config.Object("text_config").json());
  merged["vision_config"] = Json::object();
  return {config.path(), std::move(merged)};
}

PublishedConfigReader::PublishedConfigReader(const PublishedJson& config,
                                             const std::string& model_name)
    : family_(FindFamily(config)),
      config_(WithDefaults(config, family_)),
      prefix_(std::string(family_.architecture) + ".") {
  out_.family = &family_;
  out_.has_images = config.Has("vision_config");
  out_.metadata.SetString("general.architecture", family_.architecture);
  out_.metadata.SetString("general.name", model_name);
}

PublishedConfig PublishedConfigReader::Read() {
  out_.quantization = ReadPublishedQuantization(config_);
  ExpectBool("use_sliding_window", false, false);
  ReadSizes();
  ReadAttention();
  ReadWindow();
  if (family_.rope.has_any) {
    out_.rope = SetPublishedRope(config_, family_.rope, prefix_, out_.head_dim, &out_.metadata);
  }
  ReadActivation();
  if (family_.experts != nullptr) ReadExperts();
  if (family_.read_config != nullptr) family_.read_config(*this);
  RefuseVariants();
  return std::move(out_);
}

void PublishedConfigReader::Set(const char* key, int64_t value) {
  out_.metadata.SetUint32(prefix_ + key, static_cast<uint32_t>(value));
}
void PublishedConfigReader::SetFloat(const char* key, double value) {
  out_.metadata.SetFloat32(prefix_ + key, static_cast<float>(value));
}
void PublishedConfigReader::SetString(const char* key, const std::string& value) {
  out_.metadata.SetString(prefix_ + key, value);
}

double PublishedConfigReader::Obeyed(const char* key, double fallback) {
  Obey(key);
  return config_.Float(key, fallback);
}
int64_t PublishedConfigReader::ObeyedInt(const char* key, int64_t fallback) {
  Obey(key);
  return config_.Int(key, fallback);
}

void PublishedConfigReader::ExpectInt(const char* key, int64_t expected) {
  const int64_t found = ObeyedInt(key, expected);
  if (found == expected) return;
  throw Unsupported(config_, key, std::to_string(expected), std::to_string(found));
}

void PublishedConfigReader::ExpectFloat(const char* key, double expected, double fallback) {
  const double found = Obeyed(key, fallback);
  if (found == expected) return;
  throw Unsupported(config_, key, fmt::format("{}", expected), fmt::format("{}", found));
}

void PublishedConfigReader::ExpectBool(const char* key, bool expected, bool fallback) {
  Obey(key);
  if (config_.Bool(key, fallback) == expected) return;
  throw Unsupported(config_, key, expected ? "true" : "false", expected ? "false" : "true");
}

void PublishedConfigReader::ExpectLayers(
    const char* key, const char* expected,
    const std::function<bool(int64_t layer, const Json& value)>& fits) {
  Obey(key);
  const Json* list = config_.Find(key);
  if (list == nullptr) return;
  if (!list->is_array() || list->size() != static_cast<size_t>(out_.num_layers)) {
    throw Error(ErrorCode::kCorrupt, config_.path(), key,
                fmt::format("a list of {}", out_.num_layers),
                list->is_array() ? fmt::format("one of {}", list->size()) : list->type_name());
  }
  for (size_t layer = 0; layer < list->size(); ++layer) {
    if (fits(static_cast<int64_t>(layer), (*list)[layer])) continue;
    throw Unsupported(config_, key, expected,
                      fmt::format("{} in layer {}", (*list)[layer].dump(), layer));
  }
}

void PublishedConfigReader::ReadSizes() {
  const PublishedWords& words = family_.words;
  out_.hidden_size = config_.Int(words.hidden_size);
  out_.num_layers = config_.Int(words.num_layers);
  out_.tied_embeddings = config_.Bool("tie_word_embeddings", family_.tied_embeddings);
  Set("embedding_length", out_.hidden_size);
  Set("block_count", out_.num_layers);
  Set("context_length", family_.context_length > 0
                            ? config_.Int(words.context_length, family_.context_length)
                            : config_.Int(words.context_length));
  // Families from before Llama need not say it.
  const bool may_be_silent = family_.has_layer_norms;
  Set("feed_forward_length", may_be_silent
                                 ? config_.Int(words.intermediate_size, 4 * out_.hidden_size)
                                 : config_.Int(words.intermediate_size));
  const double epsilon = words.norm_epsilon == nullptr
                             ? family_.norm_epsilon
                             : config_.Float(words.norm_epsilon, family_.norm_epsilon);
  SetFloat(
      family_.has_layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      epsilon);
}

void PublishedConfigReader::ReadAttention() {
  const PublishedWords& words = family_.words;
  out_.num_heads = config_.Int(words.num_heads);
  out_.num_kv_heads = words.num_kv_heads == nullptr
                          ? out_.num_heads
                          : config_.Int(words.num_kv_heads, out_.num_heads);
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
}

// Layers of several kinds: windows where there is none to use are none.
void PublishedConfigReader::RefuseMixedLayers() const {
  const Json* types = config_.Find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) {
    throw Error(ErrorCode::kCorrupt, config_.path(), "layer_types", "a list", types->type_name());
  }
  const bool has_window =
      config_.Int("sliding_window", 0) > 0 && config_.Bool("use_sliding_window", true);
  const auto refuse = [&](const std::string& found) {
    throw Unsupported(config_, "layer_types", "the same attention in every layer", found);
  };
  const bool has_full = std::count(types->begin(), types->end(), "full_attention") > 0;
  for (const auto& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") refuse(type.dump());
    const bool is_sliding = type == "sliding_attention";
    if (is_sliding && has_full && has_window) refuse("full_attention and sliding_attention");
  }
}

void PublishedConfigReader::ReadWindow() {
  if (family_.has_window == nullptr) {
    RefuseMixedLayers();
    // Qwen names a window that it does not use (use_sliding_window).
    const bool has_switch = config_.Has("use_sliding_window");
    const int64_t window = has_switch ? 0 : config_.Int("sliding_window", 0);
    if (window > 0) Set("attention.sliding_window", window);
    return;
  }
  ExpectLayers("layer_types", "windows in the layers where all models of the family have them",
               [&](int64_t layer, const Json& type) {
                 return type ==
                        (family_.has_window(layer) ? "sliding_attention" : "full_attention");
               });
  const int64_t window = config_.Int("sliding_window", family_.sliding_window);
  if (window < 1) throw Unsupported(config_, "sliding_window", "at least 1", "0");
  Set("attention.sliding_window", window);
}

void PublishedConfigReader::ReadActivation() {
  if (!family_.obeys_activation && family_.activation == nullptr) return;
  const char* key = family_.words.activation;
  const std::string published = family_.obeys_activation ? config_.Text(key, family_.activation)
                                                         : std::string(family_.activation);
  const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                   [&](const auto& a) { return published == a.published; });
  if (found == std::end(kActivations)) {
    throw Unsupported(config_, key, "silu, gelu, gelu_pytorch_tanh, relu, fatrelu or drelu",
                      "'" + published + "'");
  }
  const std::string name = found->name;
  if (name == "silu" && !config_.Has(key)) return;
  out_.metadata.SetString("hearth.ffn_activation", name);
  if (name == "fatrelu") {
    const double threshold = config_.Float("hidden_act_param", 0.01);
    out_.metadata.SetFloat32("hearth.ffn_threshold", static_cast<float>(threshold));
  }
}

int64_t PublishedConfigReader::ReadNumberOfExperts() const {
  for (const char* key : {family_.experts->count, "num_local_experts", "num_experts"}) {
    if (config_.Has(key)) return config_.Int(key);
  }
  return 0;
}

void PublishedConfigReader::ReadExperts() {
  ExpectInt("decoder_sparse_step", 1);
  const Json* dense = config_.Find("mlp_only_layers");
  if (dense != nullptr && !dense->empty()) {
    throw Unsupported(config_, "mlp_only_layers", "none", dense->dump());
  }
  out_.num_experts = ReadNumberOfExperts();
  if (out_.num_experts < 1) {
    throw Error(ErrorCode::kCorrupt, config_.path(), "experts", "at least 1", "0");
  }
  Set("expert_count", out_.num_experts);
  Set("expert_used_count", config_.Int(family_.experts->per_token));
  if (config_.Has(family_.experts->size)) {
    Set("expert_feed_forward_length", config_.Int(family_.experts->size));
  }
  out_.metadata.SetBool(prefix_ + "expert_weights_norm",
                        config_.Bool("norm_topk_prob", family_.experts->normalizes));
}

void PublishedConfigReader::RefuseVariants() const {
  for (const auto& variant : kVariants) {
    const Json* found = config_.Find(variant.key);
    if (found == nullptr || obeyed_.count(variant.key) > 0) continue;
    const Json neutral = Json::parse(variant.neutral);
    if (*found == neutral) continue;
    throw Unsupported(
        config_, variant.key,
        fmt::format("{} in a '{}' model", neutral.is_null() ? "nothing" : variant.neutral,
                    family_.model_type),
        found->dump());
  }
}

}  // namespace hearth
