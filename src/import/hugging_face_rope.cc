#include "import/hugging_face_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>

#include "base/error.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

Error UnsupportedRope(const PublishedJson& json, const char* key, const std::string& expected,
                      const std::string& found) {
  return Error(ErrorCode::kUnsupported, json.path(), key, expected, Printable(found));
}

// Whether an object holds nothing but objects: settings by layer type.
bool IsNested(const Json& settings) {
  const auto is_object = [](const Json& value) { return value.is_object(); };
  return !settings.empty() && std::all_of(settings.begin(), settings.end(), is_object);
}

// The types that layers have, where config.json lists them.
std::set<std::string> LayerTypes(const PublishedJson& config) {
  std::set<std::string> types;
  const Json* list = config.Find("layer_types");
  if (list == nullptr || !list->is_array()) return types;
  for (const Json& type : *list) {
    if (type.is_string()) types.insert(type.get<std::string>());
  }
  return types;
}

// Of settings by layer type the one that all layers have.
PublishedJson SettingsOfAllLayers(const PublishedJson& config, const PublishedJson& nested,
                                  const char* key) {
  std::set<std::string> types = LayerTypes(config);
  if (types.empty()) {
    for (const auto& [type, settings] : nested.json().items()) types.insert(type);
  }
  const Json* chosen = nullptr;
  for (const std::string& type : types) {
    const Json* settings = nested.Find(type.c_str());
    if (settings == nullptr) throw UnsupportedRope(config, key, "'" + type + "' in it", "none");
    if (chosen == nullptr) chosen = settings;
    if (*settings != *chosen) {
      throw UnsupportedRope(config, key, "the same RoPE for all layers",
                            "another for '" + type + "'");
    }
  }
  return {nested.path(), *chosen};
}

// Newer files have an object of everything about RoPE, older ones a base and what stretches it.
// Where layers with a window have a base of their own, these are the settings of the others.
PublishedJson RopeSettings(const PublishedJson& config, const PublishedRope& family) {
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const PublishedJson settings = config.Object(key);
  if (!IsNested(settings.json())) return settings;
  if (family.local_theta > 0) return settings.Object("full_attention");
  return SettingsOfAllLayers(config, settings, key);
}

// The base of layers with a window, which nothing may stretch.
double LocalBase(const PublishedJson& config, const PublishedRope& family) {
  const PublishedJson settings = config.Object("rope_parameters");
  if (!IsNested(settings.json())) return config.Float("rope_local_base_freq", family.local_theta);
  const PublishedJson local = settings.Object("sliding_attention");
  const std::string type = local.Text("rope_type", "default");
  if (type != "default") {
    throw UnsupportedRope(local, "rope_type", "default in layers with a window", "'" + type + "'");
  }
  return local.Float("rope_theta", family.local_theta);
}

// What frequencies are divided by: 1 where they turn often in the original context, `factor` where
// they hardly turn, and mixed frequencies between.
std::vector<float> Llama3Factors(const PublishedJson& rope, double base, int64_t dims) {
  const double factor = rope.Float("factor", 1);
  const double low = rope.Float("low_freq_factor", 1);
  const double high = rope.Float("high_freq_factor", 4);
  const auto context = static_cast<double>(rope.Int("original_max_position_embeddings"));
  if (!(factor > 0) || !(high > low)) {
    throw Error(ErrorCode::kCorrupt, rope.path(), "factors",
                "a positive factor and low_freq_factor < high_freq_factor", "others");
  }
  std::vector<float> factors;
  for (int64_t i = 0; i + 1 < dims; i += 2) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(base, static_cast<double>(i) / static_cast<double>(dims));
    const double kept = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
  }
  return factors;
}

// A list of one positive number for each pair.
std::vector<float> FactorList(const PublishedJson& rope, const char* key, int64_t dims) {
  const Json* list = rope.Find(key);
  const auto pairs = static_cast<size_t>(dims / 2);
  const auto is_positive = [](const Json& v) { return v.is_number() && v.get<double>() > 0; };
  if (list == nullptr || !list->is_array() || list->size() != pairs ||
      !std::all_of(list->begin(), list->end(), is_positive)) {
    throw Error(ErrorCode::kCorrupt, rope.path(), key,
                fmt::format("a list of {} positive numbers", pairs),
                list == nullptr ? "nothing" : "another");
  }
  return list->get<std::vector<float>>();
}

// Where the short factors end, and what scores are multiplied by beyond.
void SetLongRope(const PublishedJson& config, const PublishedJson& rope, const std::string& prefix,
                 GgufMetadata* metadata) {
  for (const char* key : {"short_mscale", "long_mscale"}) {
    if (rope.Has(key)) throw UnsupportedRope(rope, key, "nothing", rope.Find(key)->dump());
  }
  const PublishedJson& says = config.Has("original_max_position_embeddings") ? config : rope;
  const int64_t original = says.Int("original_max_position_embeddings");
  if (original < 2) {
    throw Error(ErrorCode::kCorrupt, says.path(), "original_max_position_embeddings", "at least 2",
                std::to_string(original));
  }
  const auto context = static_cast<double>(config.Int("max_position_embeddings"));
  const double factor = rope.Float("factor", context / static_cast<double>(original));
  const double usual =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  metadata->SetUint32(prefix + "rope.scaling.original_context_length",
                      static_cast<uint32_t>(original));
  metadata->SetFloat32(prefix + "rope.scaling.attn_factor",
                       static_cast<float>(rope.Float("attention_factor", usual)));
}

// YaRN's factor for scores is that of `mscale`, divided by that of `mscale_all_dim`.
void SetLogMultiplier(const PublishedRope& family, const PublishedJson& rope,
                      const std::string& prefix, GgufMetadata* metadata) {
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    const bool is_known = family.may_have_log_multiplier &&
                          (key == std::string_view("mscale_all_dim") || rope.Float(key, 1) == 1);
    if (!rope.Has(key) || is_known) continue;
    throw UnsupportedRope(rope, key, family.may_have_log_multiplier ? "1" : "nothing",
                          rope.Find(key)->dump());
  }
  // One of them alone changes nothing, and neither do both where the factor itself is given.
  if (!rope.Has("mscale") || !rope.Has("mscale_all_dim") || rope.Has("attention_factor")) return;
  metadata->SetFloat32(prefix + "rope.scaling.yarn_log_multiplier",
                       static_cast<float>(rope.Float("mscale_all_dim", 1)));
}

void SetYarn(const PublishedJson& config, const PublishedRope& family, const PublishedJson& rope,
             const std::string& prefix, GgufMetadata* metadata) {
  const auto set = [&](const char* key, double value) {
    metadata->SetFloat32(prefix + "rope.scaling." + key, static_cast<float>(value));
  };
  const int64_t context =
      rope.Int("original_max_position_embeddings", config.Int("max_position_embeddings"));
  metadata->SetUint32(prefix + "rope.scaling.original_context_length",
                      static_cast<uint32_t>(context));
  set("yarn_beta_fast", rope.Float("beta_fast", 32));
  set("yarn_beta_slow", rope.Float("beta_slow", 1));
  SetLogMultiplier(family, rope, prefix, metadata);
  if (rope.Bool("truncate", true) != family.has_whole_ramp) {
    const auto name = [](bool value) { return value ? "true" : "false"; };
    throw UnsupportedRope(rope, "truncate", name(family.has_whole_ramp),
                          name(!family.has_whole_ramp));
  }
  const double factor = rope.Float("factor", 1);
  if (rope.Has("attention_factor") && factor > 0) {
    // GGUF's key multiplies YaRN's own factor, the published one replaces it.
    set("attn_factor", rope.Float("attention_factor", 1) / (0.1 * std::log(factor) + 1));
  }
}

// How many numbers of a head are rotated.
int64_t RotatedDims(const PublishedJson& config, const PublishedRope& family,
                    const PublishedJson& rope, int64_t head_dim) {
  const PublishedJson& says = rope.Has("partial_rotary_factor") ? rope : config;
  const double share = says.Float("partial_rotary_factor", family.partial);
  if (!family.may_be_partial && share != 1) {
    throw UnsupportedRope(says, "partial_rotary_factor", "1",
                          says.Find("partial_rotary_factor")->dump());
  }
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (family.may_be_partial && (!(share > 0 && share <= 1) || dims < 2 || dims % 2 != 0)) {
    throw Error(ErrorCode::kCorrupt, says.path(), "partial_rotary_factor",
                fmt::format("a share of {} that is even", head_dim), fmt::format("{}", share));
  }
  return dims;
}

}  // namespace

PublishedRopeFactors SetPublishedRope(const PublishedJson& config, const PublishedRope& family,
                                      const std::string& prefix, int64_t head_dim,
                                      GgufMetadata* metadata) {
  const PublishedJson rope = RopeSettings(config, family);
  const double base = rope.Float("rope_theta", config.Float("rope_theta", family.theta));
  metadata->SetFloat32(prefix + "rope.freq_base", static_cast<float>(base));
  if (family.local_theta > 0) {
    metadata->SetFloat32(prefix + "rope.freq_base_swa",
                         static_cast<float>(LocalBase(config, family)));
  }
  const int64_t dims = RotatedDims(config, family, rope, head_dim);
  metadata->SetUint32(prefix + "rope.dimension_count", static_cast<uint32_t>(dims));
  const std::string type = rope.Text("rope_type", rope.Text("type", "default"));
  if (type == "default") return {};
  if (type == "llama3") return {.all = Llama3Factors(rope, base, dims)};
  if (family.may_be_long && (type == "longrope" || type == "su")) {
    SetLongRope(config, rope, prefix, metadata);
    return {.short_contexts = FactorList(rope, "short_factor", dims),
            .long_contexts = FactorList(rope, "long_factor", dims)};
  }
  if (type != "linear" && type != "yarn") {
    throw UnsupportedRope(rope, "rope_type",
                          family.may_be_long ? "default, linear, yarn, llama3 or longrope"
                                             : "default, linear, yarn or llama3",
                          "'" + type + "'");
  }
  metadata->SetString(prefix + "rope.scaling.type", type);
  metadata->SetFloat32(prefix + "rope.scaling.factor", static_cast<float>(rope.Float("factor", 1)));
  if (type == "yarn") SetYarn(config, family, rope, prefix, metadata);
  return {};
}

}  // namespace hearth
