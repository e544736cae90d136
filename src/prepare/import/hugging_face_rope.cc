#include "prepare/import/hugging_face_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

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
PublishedJson RopeSettings(const PublishedJson& config) {
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const PublishedJson settings = config.Object(key);
  return IsNested(settings.json()) ? SettingsOfAllLayers(config, settings, key) : settings;
}

// What frequencies are divided by: 1 where they turn often in the original context, `factor` where
// they hardly turn, and mixed frequencies between.
std::vector<float> Llama3Factors(const PublishedJson& rope, double base, int64_t head_dim) {
  const double factor = rope.Float("factor", 1);
  const double low = rope.Float("low_freq_factor", 1);
  const double high = rope.Float("high_freq_factor", 4);
  const auto context = static_cast<double>(rope.Int("original_max_position_embeddings"));
  if (!(factor > 0) || !(high > low)) {
    throw Error(ErrorCode::kCorrupt, rope.path(), "factors",
                "a positive factor and low_freq_factor < high_freq_factor", "others");
  }
  std::vector<float> factors;
  for (int64_t i = 0; i + 1 < head_dim; i += 2) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(base, static_cast<double>(i) / static_cast<double>(head_dim));
    const double kept = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factor)));
  }
  return factors;
}

void SetYarn(const PublishedJson& config, const PublishedJson& rope, const std::string& prefix,
             GgufMetadata* metadata) {
  const auto set = [&](const char* key, double value) {
    metadata->SetFloat32(prefix + "rope.scaling." + key, static_cast<float>(value));
  };
  const int64_t context =
      rope.Int("original_max_position_embeddings", config.Int("max_position_embeddings"));
  metadata->SetUint32(prefix + "rope.scaling.original_context_length",
                      static_cast<uint32_t>(context));
  set("yarn_beta_fast", rope.Float("beta_fast", 32));
  set("yarn_beta_slow", rope.Float("beta_slow", 1));
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    if (rope.Has(key)) throw UnsupportedRope(rope, key, "nothing", rope.Find(key)->dump());
  }
  if (!rope.Bool("truncate", true)) throw UnsupportedRope(rope, "truncate", "true", "false");
  const double factor = rope.Float("factor", 1);
  if (rope.Has("attention_factor") && factor > 0) {
    // GGUF's key multiplies YaRN's own factor, the published one replaces it.
    set("yarn_attn_factor", rope.Float("attention_factor", 1) / (0.1 * std::log(factor) + 1));
  }
}

}  // namespace

std::vector<float> SetPublishedRope(const PublishedJson& config, const std::string& prefix,
                                    int64_t head_dim, GgufMetadata* metadata) {
  const PublishedJson rope = RopeSettings(config);
  const double base = rope.Float("rope_theta", config.Float("rope_theta", 10000));
  metadata->SetFloat32(prefix + "rope.freq_base", static_cast<float>(base));
  for (const PublishedJson* json : {&config, &rope}) {
    if (json->Float("partial_rotary_factor", 1) == 1) continue;
    throw UnsupportedRope(*json, "partial_rotary_factor", "1",
                          json->Find("partial_rotary_factor")->dump());
  }
  const std::string type = rope.Text("rope_type", rope.Text("type", "default"));
  if (type == "default") return {};
  if (type == "llama3") return Llama3Factors(rope, base, head_dim);
  if (type != "linear" && type != "yarn") {
    throw UnsupportedRope(rope, "rope_type", "default, linear, yarn or llama3", "'" + type + "'");
  }
  metadata->SetString(prefix + "rope.scaling.type", type);
  metadata->SetFloat32(prefix + "rope.scaling.factor", static_cast<float>(rope.Float("factor", 1)));
  if (type == "yarn") SetYarn(config, rope, prefix, metadata);
  return {};
}

}  // namespace hearth
