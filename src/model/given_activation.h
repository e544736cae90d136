// The FFN activation of a file that does not say it: what a user says instead, and what hints that
// SiLU, which such a file runs with, is wrong. GGUF files that other programs convert from ReLU
// models say nothing of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "format/gguf.h"
#include "tensor/op_kinds.h"

namespace hearth {

// Of fatrelu where nobody says another: ProSparse's (Song et al. 2024).
inline constexpr float kUsualFatReluThreshold = 0.01f;

// What a user says.
struct GivenActivation {
  FfnActivation activation = FfnActivation::kSilu;
  // Of fatrelu; nothing: the file's hearth.ffn_threshold, else the usual one.
  std::optional<float> threshold;

  bool operator==(const GivenActivation&) const = default;
};

inline constexpr std::string_view kGivenActivationNames =
    "silu, gelu, gelu_erf, relu, fatrelu[:T] or drelu";

// "silu", "gelu", "relu", "fatrelu", "fatrelu:0.02" or "drelu". Throws Error(kInvalidArgument) for
// all else.
GivenActivation ParseActivation(std::string_view text);
// The same backwards.
std::string ActivationText(const GivenActivation& given);

// Whether hearth.ffn_activation or the architecture says it; what was given does not count. False
// for unknown architectures.
bool SaysActivation(const GgufFile& file);

// Makes `file` say `given`, so that ReadModelSpec, ModelHash and what is packed from it follow it.
// A file that says the same already stays as it is. Throws Error(kInvalidArgument) for one that
// says another, and Error as ReadModelSpec does for one that says what cannot be read.
void GiveActivation(const GivenActivation& given, GgufFile* file);

// A name that speaks of a ReLU model.
struct ActivationHint {
  std::string where;         // "its file name", or a metadata key
  std::string name;          // printable
  GivenActivation probable;  // what models of that name have
};

// Of a file that does not say its activation and was not given one, the first hint of another than
// SiLU in its file name or its general.* keys; nothing where there is none. The words are those of
// published families (ReLU, ProSparse, Bamboo, TurboSparse, SmallThinker, ...), whatever the
// letters' case.
std::optional<ActivationHint> FindActivationHint(const GgufFile& file);

// The hint as a sentence that warns, without what could be done; empty where there is none.
std::string ActivationWarning(const std::string& path, const std::optional<ActivationHint>& hint);

}  // namespace hearth
