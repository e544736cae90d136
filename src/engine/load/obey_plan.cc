#include "engine/load/obey_plan.h"

#include <fmt/format.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "cache/cache_policy.h"
#include "engine/load/ffn_mode.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "model/registry.h"
#include "ops/compute.h"
#include "plan/machine_hash.h"
#include "tensor/kv_layout.h"

namespace hearth {

namespace {

[[noreturn]] void RefuseStrategy(const ExecutionPlan& plan, const char* contradicts,
                                 const char* expected) {
  throw Error(ErrorCode::kInvalidArgument, "plan",
              fmt::format("io_strategy: it contradicts {}", contradicts), expected,
              plan.io_strategy);
}

bool ReadsHalves(const ExecutionPlan& plan) { return plan.io_strategy.starts_with("halves"); }
bool ReadsPieces(const ExecutionPlan& plan) { return plan.io_strategy.ends_with("pieces"); }

// What is read one by one is shared out by `stream`, what is not read is not, and what tells which
// neurons a token needs is there before they are read.
void CheckStrategy(const ExecutionPlan& plan) {
  const std::string& strategy = plan.io_strategy;
  const bool one_by_one = strategy == "whole" || ReadsHalves(plan) || ReadsPieces(plan);
  if (!plan.stream) {
    if (one_by_one) RefuseStrategy(plan, "stream", "none, sequential or experts");
  } else if (plan.mode == "predicted") {
    if (!one_by_one) RefuseStrategy(plan, "the mode predicted", "whole, halves or pieces");
  } else if (plan.stream->holds_gates) {
    if (strategy != "whole" && strategy != "pieces" && strategy != "sequential") {
      RefuseStrategy(plan, "gates_pinned", "whole, pieces or sequential");
    }
  } else if (strategy != "sequential") {
    RefuseStrategy(plan, "the mode, which looks at every gate", "sequential");
  }
  if (plan.stream && plan.stream->holds_gates && plan.mode != "gated") {
    throw Error(ErrorCode::kInvalidArgument, "plan", "gates_pinned: in another mode than gated",
                "false", "true");
  }
  if (plan.io_core && (!plan.stream || strategy == "sequential")) {
    throw Error(ErrorCode::kInvalidArgument, "plan",
                "cores.io: no single neurons are read, so that a thread for that has nothing to do",
                "null", std::to_string(*plan.io_core));
  }
  const bool reads = strategy != "none";
  if (plan.io_backend.empty() == reads || plan.cache_policy.empty() == reads) {
    throw Error(ErrorCode::kInvalidArgument, "plan",
                reads ? "io_backend and cache_policy: io_strategy reads"
                      : "io_backend and cache_policy: io_strategy reads nothing",
                reads ? "one of each" : "none", "another");
  }
}

// Other models than those of single neurons are read in order or by expert.
void CheckKind(const ExecutionPlan& plan, const GgufFile& file) {
  if (plan.stream || plan.io_strategy == "none") return;
  if (IsPacked(file.metadata())) RefuseStrategy(plan, "a packed model without stream", "none");
  const bool is_mixture = MainFfn(ReadModelSpec(file)).num_experts > 0;
  const char* expected = is_mixture ? "experts" : "sequential";
  if (plan.io_strategy != expected) RefuseStrategy(plan, "the model", expected);
}

void CheckLayers(const ExecutionPlan& plan, const ModelSpec& spec) {
  const auto require = [](const char* what, int64_t expected, int64_t found) {
    if (expected == found) return;
    throw Error(ErrorCode::kInvalidArgument, "plan", what, std::to_string(expected),
                std::to_string(found));
  };
  require("layers: their number", spec.num_layers, plan.num_layers);
  require("layers: neurons in each", MainFfn(spec).intermediate_size, plan.neurons);
}

}  // namespace

EngineOptions OptionsOfPlan(const ExecutionPlan& plan, uint64_t model_hash,
                            const std::string& machine_hash) {
  const auto require = [](const char* what, const std::string& expected, const std::string& found) {
    if (expected == found) return;
    throw Error(ErrorCode::kInvalidArgument, "plan", what, expected, found);
  };
  require("model_hash: it is a plan for another file or activation",
          fmt::format("{:016x}", model_hash), plan.model_hash);
  require("hardware_hash: it was made for another machine", machine_hash, plan.hardware_hash);
  if (plan.ledger_bytes() > plan.budget_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "ledger: the sum of its entries",
                fmt::format("at most budget_bytes {}", plan.budget_bytes),
                std::to_string(plan.ledger_bytes()));
  }
  CheckStrategy(plan);
  EngineOptions options;
  options.memory_bytes = plan.budget_bytes;
  options.threads = plan.threads();
  options.context = plan.context;
  options.kv_codec = KvCodecFromName(plan.kv_codec).value();
  options.mode = FfnModeFromName(plan.mode);
  options.neurons = plan.stream;
  // What was planned to be in memory must not be streamed silently.
  options.may_stream = plan.io_strategy != "none";
  options.may_spill_kv = false;  // the plan has the memory for all pages
  if (!plan.cache_policy.empty()) {
    const auto policy = CachePolicyFromName(plan.cache_policy);
    if (!policy) {
      throw Error(ErrorCode::kInvalidArgument, "plan", "cache_policy", CachePolicyNames(", "),
                  plan.cache_policy);
    }
    options.streaming.pipeline.policy = *policy;
  }
  options.streaming.pipeline.gates_first = ReadsHalves(plan);
  if (plan.io_core) {
    options.caller_processor = plan.io_core;
    options.streaming.pipeline.io_thread = IoThread::kOwn;
  }
  if (ReadsPieces(plan)) options.streaming.pipeline.piece_bytes = kNeuronPieceBytes;
  options.device.planned = plan.device;
  if (plan.io_backend == "io_uring") options.streaming.io.backend = IoBackend::kIoUring;
  if (plan.io_backend == "pread") options.streaming.io.backend = IoBackend::kPread;
  return options;
}

void MakeRoomForRequests(EngineOptions& options, int64_t requests, uint64_t more_program_bytes) {
  options.kv_sequences = requests;
  options.cache_may_shrink = requests > 1 || more_program_bytes > 0;
  if (more_program_bytes > 0) options.program_bytes = ProgramBytes() + more_program_bytes;
}

EngineOptions ObeyPlan(const ExecutionPlan& plan, const std::string& name, const std::string& model,
                       const std::optional<GivenActivation>& activation) {
  const std::string machine_hash =
      MachineHash(CpuModelName(), Compute("auto", 1).isa(), AvailableCpus(), TotalMemoryBytes());
  const GgufFile file = OpenModel(model, activation);
  EngineOptions options = OptionsOfPlan(plan, ModelHash(file), machine_hash);
  options.activation = activation;
  options.may_shorten_passes = true;
  CheckLayers(plan, ReadModelSpec(file));
  CheckKind(plan, file);
  // The system leaves out those that it does not have.
  const std::vector<int> cores = plan.all_cores();
  if (!UseCpus(cores) || AllowedCpus().size() != cores.size()) {
    throw Error(ErrorCode::kInvalidArgument, name,
                "cores: this process may not use these processors");
  }
  return options;
}

EngineOptions ObeyPlan(const std::string& plan, const std::string& model,
                       const std::optional<GivenActivation>& activation) {
  return ObeyPlan(ReadPlan(plan), plan, model, activation);
}

}  // namespace hearth
