// config.json as the metadata of a GGUF file. Internal to import/.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "format/gguf.h"
#include "import/archs/published_families.h"
#include "import/hugging_face_json.h"
#include "import/hugging_face_rope.h"
#include "import/quantized/quantization_config.h"

namespace hearth {

struct PublishedConfig {
  const PublishedFamily* family = nullptr;
  GgufMetadata metadata;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_experts = 0;       // 0: one FFN per layer
  int64_t num_dense_layers = 0;  // the first of a mixture that have one FFN
  bool tied_embeddings = false;
  bool has_images = false;  // the folder's model reads images too, with tensors of their own
  PublishedRopeFactors rope;
  PublishedQuantization quantization;
};

// The text model's part of a config, which is a part of its own in models that read images too:
// all that the config says, but for what the part says otherwise.
PublishedJson TextPartOf(const PublishedJson& config);

// Reads a config once. What families may call sets a key of their architecture, or holds a value
// against the only one that GGUF's readers can do: Error(kUnsupported) names the key otherwise.
class PublishedConfigReader {
 public:
  // Throws Error(kUnsupported) for a `model_type` that is none of the families.
  PublishedConfigReader(const PublishedJson& config, const std::string& model_name);

  // Throws Error(kUnsupported), naming it, for what goes beyond the family.
  PublishedConfig Read();

  const PublishedJson& json() const { return config_; }
  PublishedConfig& out() { return out_; }
  void Set(const char* key, int64_t value);
  void SetFloat(const char* key, double value);
  void SetString(const char* key, const std::string& value);

  // Marks a key as obeyed: keys that change results and that no family obeys are refused.
  void Obey(const char* key) { obeyed_.insert(key); }
  double Obeyed(const char* key, double fallback);
  int64_t ObeyedInt(const char* key, int64_t fallback);
  void ExpectInt(const char* key, int64_t expected);  // or nothing
  void ExpectFloat(const char* key, double expected, double fallback);
  void ExpectBool(const char* key, bool expected, bool fallback);
  // Where there is a list, it has a value for each layer, and `fits` is true of all of them.
  void ExpectLayers(const char* key, const char* expected,
                    const std::function<bool(int64_t layer, const nlohmann::json& value)>& fits);

 private:
  void ReadSizes();
  void ReadAttention();
  void ReadWindow();
  void ReadActivation();
  void ReadExperts();
  void RefuseMixedLayers() const;
  void RefuseVariants() const;
  int64_t ReadNumberOfExperts() const;

  const PublishedFamily& family_;
  const PublishedJson config_;
  std::string prefix_;
  std::set<std::string> obeyed_;
  PublishedConfig out_;
};

}  // namespace hearth
