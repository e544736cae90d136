#include "ops/compute.h"

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/dispatch.h"

namespace hearth {
namespace {

const kernels::KernelTable& ChooseKernels(std::string_view isa) {
  const CpuFeatures features = DetectCpuFeatures();
  if (isa == "auto") return kernels::BestKernels(features);
  if (const kernels::KernelTable* table = kernels::FindKernels(isa, features)) return *table;
  std::string known = "auto";
  for (const std::string& name : UsableIsaNames()) known += ", " + name;
  throw Error(ErrorCode::kInvalidArgument, Field{"isa"}, "instruction set",
              "one that runs on this processor (" + known + ")", "'" + Printable(isa) + "'");
}

}  // namespace

Compute::Compute(std::string_view isa, int threads, std::optional<int> caller_processor)
    : kernels_(&ChooseKernels(isa)),
      tiles_(kernels_->tile_unit, kernels::BestSideBySide()),
      team_(threads, caller_processor) {}

void Compute::UseTiles(std::span<const TilesForTokens> measured) {
  tiles_ = kernels::TileChoice(kernels_->tile_unit, kernels::BestSideBySide(), measured);
}

std::vector<std::string> UsableIsaNames() {
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : kernels::UsableKernels(DetectCpuFeatures())) {
    names.emplace_back(table->isa);
  }
  return names;
}

bool RunsAsStored(DType dtype) { return kernels::HasKernel(dtype); }

}  // namespace hearth
