// Names of operation kinds as files and reports spell them. Kept apart from op_kinds.h, which
// instruction-set files include and which therefore has no standard library in it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tensor/op_kinds.h"

namespace hearth {

// "silu", "relu", "fatrelu", "drelu": the values of hearth.ffn_activation.
const char* FfnActivationName(FfnActivation activation);
std::optional<FfnActivation> FfnActivationFromName(std::string_view name);
// Every name, for messages: "silu, relu, ...".
std::string FfnActivationNames();

// Whether a person may name it for a model that does not say its own. The others come with numbers
// that were calibrated for a model, or belong to one family.
bool IsCommonActivation(FfnActivation activation);
inline constexpr std::string_view kCommonActivationNames =
    "silu, gelu, gelu_erf, relu, fatrelu or drelu";

}  // namespace hearth
