#include "cli/pack/profile_imatrix.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/stopwatch.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "prepare/quantize/importance_collector.h"
#include "storage/atomic_file.h"

namespace hearth::cli {

int MakeImatrix(const ModelOptions& model, const ModelSpec& spec, std::span<const TokenId> text,
                const ImatrixJob& job) {
  CheckWritable(job.output);
  const Stopwatch watch;
  ModelOptions dense = model;
  dense.mode = FfnMode::kDense;
  dense.advises = false;
  dense.reserved_bytes = ImportanceBytes(spec);
  const auto engine = LoadEngine(dense);
  CatchInterrupts(true);
  CollectedImportance collected;
  {
    ProgressLine progress("collecting", ProgressUnit::kTokens);
    CollectOptions collect;
    collect.cancel = &InterruptFlag();
    collect.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    collected = CollectImportance(*engine, text, collect);
  }
  WriteImportance(job.output, collected.sums,
                  {.text = job.text_name,
                   .chunks = collected.windows,
                   .chunk_tokens = static_cast<uint64_t>(engine->context())});
  uint64_t matrices = 0;
  for (const InputSums& sums : collected.sums) matrices += sums.names.size();
  const uint64_t bytes = std::filesystem::file_size(job.output);
  if (job.json) {
    WriteOutput(DumpJson({{"file", job.output},
                          {"bytes", bytes},
                          {"matrices", matrices},
                          {"tokens", collected.tokens},
                          {"windows", collected.windows},
                          {"ms", 1000 * watch.Seconds()},
                          {"memory", MemoryJson(*engine, model)}}));
    return kExitDone;
  }
  WriteOutput(fmt::format("wrote {}: importance of the inputs of {} matrices over {} tokens, {}\n",
                          job.output, matrices, collected.tokens, FormatSize(bytes)));
  return kExitDone;
}

}  // namespace hearth::cli
