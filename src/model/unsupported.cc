#include "model/unsupported.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/registry.h"

namespace hearth {
namespace {

constexpr char kOldExperts[] =
    "a Mixtral file from before April 2024, in which every expert is a tensor of its own: get a "
    "newer file of the model, or convert it again";
constexpr char kLayerFactors[] = "RoPE factors of single layers cannot be run yet";
constexpr char kExtraNorms[] = "norms after attention or FFN cannot be run yet";
constexpr char kHead[] = "the head of a classifier or ranking model cannot be run";

// What the rest of a layer tensor's name, after "blk.N.", begins with.
struct Variant {
  std::string_view beginning;
  const char* sentence;
};
constexpr Variant kLayerVariants[] = {
    {"ffn_gate_inp_shexp.", "shared experts cannot be run yet"},
    {"ffn_gate_shexp.", "shared experts cannot be run yet"},
    {"ffn_up_shexp.", "shared experts cannot be run yet"},
    {"ffn_down_shexp.", "shared experts cannot be run yet"},
    {"attn_sinks", "attention sinks cannot be run in this family yet"},
    {"rope_freqs", kLayerFactors},
    {"rope_factors_", kLayerFactors},
    {"post_attention_norm.", kExtraNorms},
    {"post_ffw_norm.", kExtraNorms},
    {"ssm_", "recurrent layers cannot be run yet"},
};
constexpr Variant kModelVariants[] = {
    {"cls.", kHead},
    {"cls_", kHead},
    {"rope_factors_", "LongRoPE's two tables of factors cannot be run in this family yet"},
    {"position_embd.", "learned positions cannot be run in this family yet"},
};

// After "blk.N."; empty for tensors of the whole model.
std::string_view NameInLayer(std::string_view name) {
  if (!name.starts_with("blk.")) return {};
  const size_t dot = name.find('.', 4);
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

// "ffn_gate.7.weight".
bool IsExpertOfItsOwn(std::string_view name) {
  for (const std::string_view part : {"ffn_gate.", "ffn_up.", "ffn_down."}) {
    if (name.starts_with(part) && name.size() > part.size()) {
      return name[part.size()] >= '0' && name[part.size()] <= '9';
    }
  }
  return false;
}

const char* FindVariant(std::string_view name) {
  const std::string_view in_layer = NameInLayer(name);
  const auto begins = [](std::string_view text) {
    return [text](const Variant& variant) { return text.starts_with(variant.beginning); };
  };
  if (in_layer.empty()) {
    const auto* found =
        std::find_if(std::begin(kModelVariants), std::end(kModelVariants), begins(name));
    return found == std::end(kModelVariants) ? nullptr : found->sentence;
  }
  if (IsExpertOfItsOwn(in_layer)) return kOldExperts;
  const auto* found =
      std::find_if(std::begin(kLayerVariants), std::end(kLayerVariants), begins(in_layer));
  return found == std::end(kLayerVariants) ? nullptr : found->sentence;
}

}  // namespace

void RefuseOtherKinds(const GgufFile& file) {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kUnsupported, file.path(), what);
  };
  const std::string* const type = file.metadata().FindString("general.type");
  const std::string* const architecture = file.metadata().FindString("general.architecture");
  if (type != nullptr && *type == "adapter") {
    refuse("is a LoRA adapter, not a model: load it together with its base model");
  }
  if (type != nullptr && *type == "imatrix") {
    refuse("is an importance matrix, which is for making quantized files, and no model");
  }
  const bool is_clip = architecture != nullptr && *architecture == "clip";
  if (is_clip || (type != nullptr && *type == "mmproj")) {
    refuse(
        "is the image or sound encoder (mmproj) of a model: name the file of the language model");
  }
  const bool is_known =
      architecture != nullptr &&
      std::any_of(Architectures().begin(), Architectures().end(),
                  [&](const Architecture& known) { return known.name == *architecture; });
  if (is_known && file.tensors().empty() && file.foreign_tensors().empty()) {
    refuse("has no tensors: it is the vocabulary of a model without the model");
  }
}

bool IsOfGuessingLayer(const ModelSpec& spec, std::string_view tensor) {
  for (int64_t l = 0; l < spec.guessing_layers; ++l) {
    if (tensor.starts_with("blk." + std::to_string(spec.num_layers + l) + ".")) return true;
  }
  return false;
}

void RefuseUnsupportedTensors(const GgufFile& file, const ModelSpec& spec,
                              std::span<const WeightDecl> declared) {
  std::set<std::string_view> known;
  for (const WeightDecl& decl : declared) known.insert(decl.name);
  for (const GgufTensor& tensor : file.tensors()) {
    const char* const sentence = FindVariant(tensor.name);
    if (sentence == nullptr || known.contains(tensor.name)) continue;
    if (IsOfGuessingLayer(spec, tensor.name)) continue;
    throw Error(ErrorCode::kUnsupported, file.path(),
                "tensor '" + Printable(tensor.name) + "': " + sentence);
  }
}

}  // namespace hearth
