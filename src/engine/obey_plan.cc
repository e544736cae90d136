#include "engine/obey_plan.h"

#include <fmt/format.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "cache/cache_policy.h"
#include "engine/ffn_mode.h"
#include "format/packed_file.h"
#include "ops/compute.h"
#include "plan/machine_hash.h"

namespace hearth {

EngineOptions OptionsOfPlan(const ExecutionPlan& plan, uint64_t model_hash,
                            const std::string& machine_hash) {
  const auto require = [](const char* what, const std::string& expected, const std::string& found) {
    if (expected == found) return;
    throw Error(ErrorCode::kInvalidArgument, "plan", what, expected, found);
  };
  require("model_hash: it is a plan for another file", fmt::format("{:016x}", model_hash),
          plan.model_hash);
  require("hardware_hash: it was made for another machine", machine_hash, plan.hardware_hash);
  if (plan.ledger_bytes() > plan.budget_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "ledger: the sum of its entries",
                fmt::format("at most budget_bytes {}", plan.budget_bytes),
                std::to_string(plan.ledger_bytes()));
  }
  EngineOptions options;
  options.memory_bytes = plan.budget_bytes;
  options.threads = plan.threads();
  options.context = plan.context;
  options.kv_dtype = plan.kv_dtype == "f32" ? DType::kF32 : DType::kF16;
  options.mode = FfnModeFromName(plan.mode);
  options.neurons = plan.stream;
  // What was planned to be in memory must not be streamed silently.
  options.may_stream = plan.io_strategy != "none";
  if (!plan.cache_policy.empty()) {
    const auto policy = CachePolicyFromName(plan.cache_policy);
    if (!policy) {
      throw Error(ErrorCode::kInvalidArgument, "plan", "cache_policy", CachePolicyNames(", "),
                  plan.cache_policy);
    }
    options.streaming.pipeline.policy = *policy;
  }
  if (plan.io_strategy == "halves") {
    options.streaming.pipeline.pipeline = PipelineKind::kMatrix;
  }
  if (plan.io_backend == "io_uring") options.streaming.io.backend = IoBackend::kIoUring;
  if (plan.io_backend == "pread") options.streaming.io.backend = IoBackend::kPread;
  return options;
}

EngineOptions ObeyPlan(const std::string& plan, const std::string& model) {
  const ExecutionPlan read = ReadPlan(plan);
  const std::string machine_hash =
      MachineHash(CpuModelName(), Compute("auto", 1).isa(), AvailableCpus(), TotalMemoryBytes());
  EngineOptions options = OptionsOfPlan(read, ModelHash(GgufFile::Open(model)), machine_hash);
  if (!UseCpus(read.compute_cores)) {
    throw Error(ErrorCode::kInvalidArgument, plan,
                "cores.compute: this process may not use these processors");
  }
  return options;
}

}  // namespace hearth
