// What a run of a model takes and how it is held in memory, decided from the header of its file
// before anything large is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/load/adapters.h"
#include "engine/load/embedding_table.h"
#include "engine/load/engine_options.h"
#include "engine/load/kv_plan.h"
#include "engine/load/matrix_streaming.h"
#include "engine/load/model.h"
#include "engine/load/neuron_streaming.h"
#include "format/gguf.h"
#include "pass/transformer_pass.h"
#include "sparsity/mode.h"

namespace hearth {

struct EnginePlan {
  uint64_t limit_bytes = 0;
  bool limit_is_users = false;  // else what is free
  int threads = 1;
  LoadPlan load;  // without FFNs that are streamed
  std::vector<AdapterPlan> adapters;
  PassLimits limits;
  KvPlan kv;
  FfnMode mode = FfnMode::kDense;
  // What will be charged, by name. More than the limit where the model cannot run in it.
  std::map<std::string, uint64_t> ledger;
  std::optional<EmbeddingTable> embedding;  // that is not in memory, as the model does not fit
  // FFNs that do not all fit: of a packed model or of another one; neither where they do.
  std::optional<StreamedBundles> bundles;
  StreamPlan neurons;
  std::optional<StreamedFfnMatrices> matrices;
  ExtentPlan extents;
  uint64_t streamed_bytes = 0;  // of the ledger, what these take

  bool is_streamed() const { return bundles || matrices; }
  uint64_t needed_bytes() const;
  KvLayout kv_layout() const { return KvLayoutFor(load.spec, limits.kv_codec); }
};

// The limit where the user sets none: what is free, less a margin.
uint64_t DefaultLimitBytes();

// With options.may_shorten_passes, passes have half of options.batch_tokens tokens, or a quarter
// and so on down to 32 or to options.kv_sequences, where else little or nothing would be left of
// the limit for FFNs. What is on a device takes no memory here. Throws hearth::Error for all that
// is wrong with the file or the options, and Error(kOutOfBudget) for options.neurons that do not
// fit into the limit and for options.kv_memory_bytes that are too few for the context.
EnginePlan PlanEngine(const GgufFile& file, const EngineOptions& options,
                      const OnDevice& on_device = {});

// What a device must know of the passes that these options make of a file, before LeaveToDevice.
// Throws as ResolveMode.
DevicePasses PassesFor(const EngineOptions& options, const GgufFile& file, const LoadPlan& plan);

// Throws Error(kOutOfBudget), with the smallest limit that would do, where a plan passes its own.
void CheckBudget(const EnginePlan& plan, const std::string& path);

}  // namespace hearth
