// Granite 3 and 4 without recurrent layers: Llama with scales, and with experts whose gates and ups
// are one tensor.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"
#include "import/hugging_face_tensors.h"

namespace hearth {
namespace published_granite {
namespace {

constexpr PublishedExperts kExperts = {
    "block_sparse_moe", {nullptr, nullptr, nullptr}, true, "num_local_experts"};
constexpr PublishedModule kRouter[] = {Norm("block_sparse_moe.router.layer", "ffn_gate_inp")};

void ReadGranite(PublishedConfigReader& reader) {
  reader.SetFloat("attention.scale", reader.Obeyed("attention_multiplier", 1));
  reader.SetFloat("embedding_scale", reader.Obeyed("embedding_multiplier", 1));
  reader.SetFloat("residual_scale", reader.Obeyed("residual_multiplier", 1));
  reader.SetFloat("logit_scale", reader.Obeyed("logits_scaling", 1));
}

void TakeExperts(PublishedTensors& tensors, const std::string& from, const std::string& to) {
  tensors.TakeHalves(from + "block_sparse_moe.input_linear.weight", to + "ffn_gate_exps.weight",
                     to + "ffn_up_exps.weight");
  tensors.Take(from + "block_sparse_moe.output_linear.weight", to + "ffn_down_exps.weight");
}

constexpr PublishedFamily Granite(const char* name) {
  PublishedFamily family = {.model_type = name,
                            .architecture = name,
                            .top = kUsualTop,
                            .layer = kUsualLayer,
                            .dense = kUsualFfn};
  family.interleaves_heads = true;
  family.read_config = ReadGranite;
  return family;
}

constexpr PublishedFamily GraniteMoe() {
  PublishedFamily family = Granite("granitemoe");
  family.experts = &kExperts;
  family.mixture = kRouter;
  family.take_layer = TakeExperts;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Granite("granite"), GraniteMoe()};

}  // namespace
}  // namespace published_granite

std::span<const PublishedFamily> PublishedGranites() { return published_granite::kFamilies; }

}  // namespace hearth
