// SmallThinker: mixtures in all layers, and lists of 0 and 1 that say which layers have a window
// and which rotate.
#include <algorithm>

#include "base/error.h"
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"
#include "model/archs/smallthinker.h"

namespace hearth {
namespace published_smallthinker {
namespace {

using Json = nlohmann::json;

constexpr PublishedModule kRouter[] = {Norm("block_sparse_moe.primary_router", "ffn_gate_inp")};
constexpr PublishedExperts kExperts = {.experts = "block_sparse_moe.experts",
                                       .parts = {"gate", "up", "down"},
                                       .count = "moe_num_primary_experts",
                                       .per_token = "moe_num_active_primary_experts",
                                       .size = "moe_ffn_hidden_size"};

// Of expert_gating_func.
constexpr uint32_t kSoftmax = 1;
constexpr uint32_t kSigmoid = 2;

bool HasOnes(const Json* list) {
  return list != nullptr && list->is_array() &&
         std::any_of(list->begin(), list->end(), [](const Json& value) { return value == 1; });
}

// GGUF's readers know two kinds of models: all layers see and rotate all, or windows go with
// rotation and neither is in the first layer of every four.
void ReadLayouts(PublishedConfigReader& reader) {
  const PublishedJson& json = reader.json();
  if (!HasOnes(json.Find("sliding_window_layout"))) {
    reader.ExpectLayers("sliding_window_layout", "0 or 1 in every layer",
                        [](int64_t, const Json& value) { return value == 0; });
    reader.ExpectLayers("rope_layout", "1 in every layer of a model without windows",
                        [](int64_t, const Json& value) { return value == 1; });
    return;
  }
  constexpr char kExpected[] = "0 in the first layer of every four and 1 in the others";
  if (!json.Has("rope_layout")) {  // which means 1 in all
    throw Error(ErrorCode::kUnsupported, json.path(), "rope_layout", kExpected, "nothing");
  }
  for (const char* key : {"sliding_window_layout", "rope_layout"}) {
    reader.ExpectLayers(key, kExpected, [](int64_t layer, const Json& value) {
      return value == (layer % int64_t{kSmallThinkerPeriod} == 0 ? 0 : 1);
    });
  }
  reader.Set("attention.sliding_window", json.Int("sliding_window_size"));
}

void ReadSmallThinker(PublishedConfigReader& reader) {
  reader.ExpectBool("moe_enable_early_router", true, true);
  reader.ExpectBool("moe_enable_secondary_experts", false, false);
  reader.ExpectInt("moe_shared_primary_experts", 0);
  reader.ExpectBool("norm_topk_prob", true, true);
  reader.ExpectLayers("moe_layer_layout", "1, experts in every layer",
                      [](int64_t, const Json& value) { return value == 1; });
  reader.Set("expert_gating_func",
             reader.json().Bool("moe_primary_router_apply_softmax", false) ? kSoftmax : kSigmoid);
  ReadLayouts(reader);
}

constexpr PublishedFamily SmallThinker() {
  PublishedFamily family = {.model_type = "smallthinker",
                            .architecture = "smallthinker",
                            .top = kUsualTop,
                            .layer = kUsualLayer};
  family.words.intermediate_size = "moe_ffn_hidden_size";
  family.mixture = kRouter;
  family.experts = &kExperts;
  family.tied_embeddings = true;
  family.activation = nullptr;
  family.obeys_activation = false;
  family.rope.theta = 1e6;
  family.read_config = ReadSmallThinker;
  return family;
}

constexpr PublishedFamily kFamilies[] = {SmallThinker()};

}  // namespace
}  // namespace published_smallthinker

std::span<const PublishedFamily> PublishedSmallThinkers() {
  return published_smallthinker::kFamilies;
}

}  // namespace hearth
