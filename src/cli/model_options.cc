#include "cli/model_options.h"

#include "base/units.h"
#include "cli/progress.h"

namespace hearth::cli {

void AddModelOptions(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model, "model file (GGUF; any file of a split set)")
      ->required();
  command.add_option("--threads", options.threads, "threads (default: one per processor)")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--ctx", options.context,
                  "context in tokens (default: the model's, at most 4096)")
      ->option_text("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--kv", options.kv, "type of the KV cache (default f16)")
      ->option_text("f16|f32")
      ->check(CLI::IsMember({"f16", "f32"}));
  command
      .add_option("--memory", options.memory,
                  "most memory to use, like 2.5G (default: what is free)")
      ->option_text("SIZE");
  command
      .add_option("--isa", options.isa,
                  "kernels to use, e.g. scalar, avx2 (default: the best here)")
      ->option_text("NAME");
}

std::unique_ptr<Engine> LoadEngine(const ModelOptions& options) {
  EngineOptions engine;
  if (!options.memory.empty()) engine.memory_bytes = ParseSize(options.memory, "--memory");
  engine.threads = options.threads;
  engine.isa = options.isa;
  engine.context = options.context;
  engine.kv_dtype = options.kv == "f32" ? DType::kF32 : DType::kF16;
  ProgressLine progress("loading", ProgressUnit::kBytes);
  return Engine::Load(options.model, engine,
                      [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
}

}  // namespace hearth::cli
