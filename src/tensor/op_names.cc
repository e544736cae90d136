#include "tensor/op_names.h"

namespace hearth {
namespace {

constexpr const char* kNames[kNumFfnActivations] = {
    "silu", "relu", "fatrelu", "drelu", "thresholded_silu", "gelu", "gelu_erf", "clamped_swiglu"};

}  // namespace

std::string FfnActivationNames() {
  std::string all;
  for (const char* name : kNames) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

bool IsCommonActivation(FfnActivation activation) {
  return activation != FfnActivation::kThresholdedSilu &&
         activation != FfnActivation::kClampedSwiglu;
}

const char* FfnActivationName(FfnActivation activation) {
  return kNames[static_cast<size_t>(activation)];
}

std::optional<FfnActivation> FfnActivationFromName(std::string_view name) {
  for (int i = 0; i < kNumFfnActivations; ++i) {
    if (name == kNames[i]) return static_cast<FfnActivation>(i);
  }
  return std::nullopt;
}

}  // namespace hearth
