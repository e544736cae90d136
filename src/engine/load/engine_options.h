// What a user may ask of an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/load/adapters.h"
#include "engine/load/device_part.h"
#include "engine/load/neuron_streaming.h"
#include "model/given_activation.h"
#include "ops/tiles/measured_tiles.h"
#include "plan/stream_plan.h"
#include "sparsity/mode.h"
#include "storage/async/unnamed_file.h"
#include "tensor/kv_layout.h"

namespace hearth {

inline constexpr int64_t kDefaultContext = 4096;

struct EngineOptions {
  std::optional<uint64_t> memory_bytes;  // limit; nothing: what is free, less a margin
  // Of the limit, what the program takes besides the model; nothing: what it takes now.
  std::optional<uint64_t> program_bytes;
  uint64_t reserved_bytes = 0;  // of the limit, what the caller will charge besides
  int threads = 0;              // 0: one per processor this process may use
  // The one that the thread which calls the engine keeps to while it reads; nothing: the first.
  std::optional<int> caller_processor;
  std::string isa = "auto";
  // The hardware profile whose measured tiles are used where it is of this machine and `isa`
  // (ops/tiles/measured_tiles.h); empty: the solver's. Results are the same.
  std::string hardware_file = UsersHardwareFile();
  int64_t context = 0;  // tokens of a session; 0: the model's, at most kDefaultContext
  // The KV cache has room for so many sequences of this context, where they take no more than an
  // eighth of the limit; else for what does, at least one.
  int64_t kv_sequences = 1;
  KvCodec kv_codec = KvCodec::kF16;
  // That quantized matrices multiply. kF16 is refused for packed models, whose neurons multiply
  // int8, and where no matrix is quantized.
  TileActivations activations = TileActivations::kInt8;
  // Memory that KV pages may take; what they need beyond it lies in a file without a name. Nothing:
  // what memory_bytes leaves beside the weights, or, where there is no such limit, all of it.
  std::optional<uint64_t> kv_memory_bytes;
  // False: all KV pages are in memory where kv_memory_bytes says nothing.
  bool may_spill_kv = true;
  // The folder of that file; empty: TemporaryFolder().
  std::string kv_folder;
  // Makes that file; null: OpenUnnamedFile.
  std::function<UnnamedFile(const std::string& folder, uint64_t bytes)> open_kv_file;
  int64_t batch_tokens = 256;  // most tokens of one pass
  // Where memory is short, passes have fewer tokens.
  bool may_shorten_passes = false;
  std::optional<FfnMode> mode;  // nothing: what ResolveMode finds for the file
  // Of a file that does not say its FFN activation; nothing: as ReadModelSpec takes it.
  std::optional<GivenActivation> activation;
  // Of a SiLU model, one per layer: it runs as a file with these thresholds would (ThresholdSilu);
  // empty: as it is.
  std::vector<float> silu_thresholds;
  StreamingOptions streaming;  // where the model does not fit
  // How memory for neurons is shared out where a packed model does not fit, from an execution plan
  // (plan/execution_plan.h); nothing: in closed form.
  std::optional<StreamPlan> neurons;
  // Of `neurons`, up to half of the slots of the cache are given up where what these options ask
  // for besides needs their memory (more sequences, a program that takes more); then the sequences
  // are fewer.
  bool cache_may_shrink = false;
  // Low-rank adapters that are loaded beside the model; texts choose among them.
  std::vector<AdapterOption> adapters;
  // A device beside the processor that takes a part of every FFN of a packed model.
  DeviceRequest device;
  // False: a model that does not fit as a whole is refused.
  bool may_stream = true;
};

}  // namespace hearth
