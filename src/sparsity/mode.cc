#include "sparsity/mode.h"

namespace hearth {
namespace {

constexpr FfnMode kModes[] = {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted};

}  // namespace

const char* FfnModeName(FfnMode mode) {
  switch (mode) {
    case FfnMode::kDense:
      return "dense";
    case FfnMode::kGated:
      return "gated";
    case FfnMode::kPredicted:
      return "predicted";
  }
  return "";
}

std::optional<FfnMode> FfnModeFromName(std::string_view name) {
  for (const FfnMode mode : kModes) {
    if (name == FfnModeName(mode)) return mode;
  }
  return std::nullopt;
}

}  // namespace hearth
