// Names of operation kinds as files and reports spell them. Kept apart from op_kinds.h, which
// instruction-set files include and which therefore has no standard library in it.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/op_kinds.h"

namespace hearth {

// "silu", "relu", "fatrelu", "drelu": the values of hearth.ffn_activation.
const char* FfnActivationName(FfnActivation activation);
std::optional<FfnActivation> FfnActivationFromName(std::string_view name);

}  // namespace hearth
