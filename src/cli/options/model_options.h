// The options that every command which loads a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/device_options.h"
#include "cli/options/streaming_options.h"
#include "engine/engine.h"
#include "model/given_activation.h"
#include "plan/execution_plan.h"
#include "sparsity/mode.h"
#include "text/chat/chat_format.h"

namespace hearth::cli {

// A plan that is made from cached profiles, within what the other options allow.
inline constexpr char kMakePlan[] = "auto";

struct ModelOptions {
  std::string model;
  std::optional<uint64_t> memory_bytes;  // nothing: what is free
  int threads = 0;
  std::string isa = "auto";
  int64_t context = 0;
  std::string kv = "f16";
  std::string activations = "i8";           // a name of TileActivations
  std::optional<uint64_t> kv_memory_bytes;  // as EngineOptions has them
  std::string kv_folder;
  StreamingArguments streaming;
  DeviceArguments device;
  std::optional<FfnMode> mode;  // nothing: the file decides
  std::vector<AdapterOption> adapters;
  // No options: as EngineOptions has them.
  std::vector<float> silu_thresholds;
  bool may_stream = true;
  bool locks = false;           // LockMemory, once the model is loaded
  bool advises = true;          // whether packing would help, and what the tokenizer warns of
  uint64_t reserved_bytes = 0;  // as EngineOptions has it
  // Of a file that does not say it: as EngineOptions has it.
  std::optional<GivenActivation> activation;
  bool doubts = true;  // a name of a ReLU model is warned of, where it runs as SiLU
  // An execution plan's file, which says the rest, or kMakePlan; empty: none.
  std::string plan;
  std::optional<ExecutionPlan> planned;  // of it (cli/plan/settle_plan.h)
  int64_t kv_sequences = 1;
  uint64_t more_program_bytes = 0;  // what the program will take besides, beyond what it takes now

  bool makes_plan() const { return plan == kMakePlan; }
};

// "auto" is nothing. Throws UsageError.
std::optional<FfnMode> ParseMode(const std::string& name);

// FILE or FILE=WEIGHT; a file whose name has a '=' is taken for one where it is there. Throws
// UsageError.
AdapterOption ParseAdapter(const std::string& text);

// --lora FILE[=WEIGHT], which may be repeated. `adapters` must outlive `command`.
CLI::Option* AddLoraOption(CLI::App& command, std::vector<AdapterOption>& adapters,
                           const std::string& help);

// --activation, for every command that opens a model.
CLI::Option* AddActivationOption(CLI::App& command, std::optional<GivenActivation>& given);

// --chat-format, for those that chat.
CLI::Option* AddChatFormatOption(CLI::App& command, std::optional<ChatFormat>& format);

// Says of a model folder what of it is not used (import/hugging_face.h).
void SayWhatIsLeftOut(const std::string& model);

// Warns where a model's names make it doubtful that it is a SiLU model, which it runs as.
void WarnOfActivation(const GgufFile& file);

// MODEL and --threads, --ctx, --kv, --kv-memory, --kv-dir, --memory, --lock, --isa, --activation,
// --activations.
void AddModelOptions(CLI::App& command, ModelOptions& options);

// --plan, --mode, --lora and the options of streaming and of devices, for commands that compute
// with the model.
void AddModeOption(CLI::App& command, ModelOptions& options);

// What LoadEngine asks of an engine, in order. A plan must be settled (cli/plan/settle_plan.h).
// CheckModelOptions warns of a limit that the machine does not have, and throws UsageError for
// options that have no effect. EngineOptionsOf throws hearth::Error.
void CheckModelOptions(const ModelOptions& options);
EngineOptions EngineOptionsOf(const ModelOptions& options);
// With a warning where the system refuses.
void LockIfAsked(const ModelOptions& options);
// Warns of what may be wrong with a model that is loaded.
void SayDoubts(const Engine& engine);

// Loads with a progress line on a terminal.
std::unique_ptr<Engine> LoadEngine(const ModelOptions& options);

}  // namespace hearth::cli
