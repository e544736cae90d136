#include "engine/ffn_mode.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ops/sparse_ffn.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

// Why a file cannot run in a mode.
std::string MissingFor(FfnMode mode, const LoadPlan& plan) {
  if (!plan.is_packed) {
    return fmt::format("--mode {} needs single neurons: hearth pack makes a file that has them",
                       FfnModeName(mode));
  }
  const FfnActivation activation = plan.spec.layers.front().ffn.activation;
  if (!CanSkipNeurons(activation)) {
    return fmt::format(
        "--mode {} leaves out neurons that add nothing, and with {} all add something",
        FfnModeName(mode), FfnActivationName(activation));
  }
  return fmt::format(
      "--mode {} needs predictors, and this file was packed without a text to make "
      "them from",
      FfnModeName(mode));
}

}  // namespace

std::vector<FfnMode> UsableModes(const LoadPlan& plan) {
  std::vector<FfnMode> modes = {FfnMode::kDense};
  const bool skips =
      std::all_of(plan.spec.layers.begin(), plan.spec.layers.end(),
                  [](const LayerSpec& layer) { return CanSkipNeurons(layer.ffn.activation); });
  if (!plan.is_packed || !skips) return modes;
  modes.push_back(FfnMode::kGated);
  if (plan.predictors) modes.push_back(FfnMode::kPredicted);
  return modes;
}

FfnMode ResolveMode(const GgufFile& file, const LoadPlan& plan, std::optional<FfnMode> wanted) {
  const std::vector<FfnMode> usable = UsableModes(plan);
  if (!wanted) {
    const std::string* recommended = file.metadata().FindString(kFfnModeKey);
    if (recommended == nullptr) return usable.back();
    wanted = FfnModeFromName(*recommended);
    if (!wanted) {
      throw Error(ErrorCode::kCorrupt, file.path(), kFfnModeKey, "dense, gated or predicted",
                  "'" + Printable(*recommended) + "'");
    }
  }
  if (std::find(usable.begin(), usable.end(), *wanted) == usable.end()) {
    throw Error(ErrorCode::kUnsupported, file.path(), MissingFor(*wanted, plan));
  }
  return *wanted;
}

}  // namespace hearth
