#include "engine/load/ffn_mode.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ops/sparse_ffn.h"
#include "tensor/op_names.h"

namespace hearth {

std::vector<FfnMode> ModesOfPacked(FfnActivation activation, bool has_predictors) {
  std::vector<FfnMode> modes = {FfnMode::kDense};
  if (!CanSkipNeurons(activation)) return modes;
  modes.push_back(FfnMode::kGated);
  if (has_predictors) modes.push_back(FfnMode::kPredicted);
  return modes;
}

std::string MissingForMode(FfnMode mode, FfnActivation activation) {
  if (!CanSkipNeurons(activation)) {
    return fmt::format("mode {} leaves out neurons that add nothing, and with {} all add something",
                       FfnModeName(mode), FfnActivationName(activation));
  }
  return fmt::format("mode {} needs predictors, which hearth pack makes from a text",
                     FfnModeName(mode));
}

std::vector<FfnMode> UsableModes(const LoadPlan& plan) {
  if (!plan.is_packed) return {FfnMode::kDense};
  return ModesOfPacked(MainFfn(plan.spec).activation, plan.predictors != nullptr);
}

FfnMode ResolveMode(const GgufFile& file, const LoadPlan& plan, std::optional<FfnMode> wanted) {
  const std::vector<FfnMode> usable = UsableModes(plan);
  if (!wanted) {
    const std::optional<uint64_t> recorded = file.metadata().FindUint(kFfnModeKey);
    if (!recorded) return usable.back();
    if (*recorded > static_cast<uint64_t>(FfnMode::kPredicted)) {
      throw Error(ErrorCode::kCorrupt, file.path(), kFfnModeKey, "0 to 2",
                  std::to_string(*recorded));
    }
    wanted = static_cast<FfnMode>(*recorded);
  }
  if (std::find(usable.begin(), usable.end(), *wanted) == usable.end()) {
    throw Error(
        ErrorCode::kUnsupported, file.path(),
        plan.is_packed
            ? MissingForMode(*wanted, MainFfn(plan.spec).activation)
            : fmt::format("mode {} needs single neurons: hearth pack makes a file that has them",
                          FfnModeName(*wanted)));
  }
  return *wanted;
}

}  // namespace hearth
