// hearth_micro [--isa NAME] [--memory SIZE] [--benchmark_filter=REGEX ...]
// hearth_micro --tiles [--json FILE] [--isa NAME] [--memory SIZE]
//
// Speeds of single kernels. Without --isa all tables run that this machine can; --memory is what
// operands are read from (2G; several times the caches, or caches are what is measured). With
// --tiles it times all geometries of products with weight tiles and holds the solver's choice
// against the fastest (tile_table.h).
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "bench/micro/micro.h"
#include "bench/micro/tile_table.h"
#include "kernels/dispatch.h"

namespace hearth::micro {
namespace {

struct Options {
  std::string_view isa;
  std::string_view memory = "2G";
  std::string_view json;
  bool tiles = false;
};

// What Google Benchmark has left of the arguments.
Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string_view flag = argument.substr(0, equals);
    std::string_view* value = nullptr;
    if (flag == "--isa") value = &options.isa;
    if (flag == "--memory") value = &options.memory;
    if (flag == "--json") value = &options.json;
    if (argument == "--tiles") {
      options.tiles = true;
      continue;
    }
    if (value == nullptr || (equals == argument.npos && i + 1 == argc)) {
      throw Error(ErrorCode::kInvalidArgument, "hearth_micro", "arguments",
                  "--tiles, --json FILE, --isa NAME, --memory SIZE and those of Google Benchmark",
                  std::string(argument));
    }
    *value = equals == argument.npos ? argv[++i] : argument.substr(equals + 1);
  }
  if (!options.json.empty() && !options.tiles) {
    throw Error(ErrorCode::kInvalidArgument, "--json", "use",
                "with --tiles; benchmarks are written by --benchmark_out", "it alone");
  }
  return options;
}

std::vector<const kernels::KernelTable*> TablesFor(std::string_view isa) {
  const auto usable = kernels::UsableKernels(DetectCpuFeatures());
  if (isa.empty()) return {usable.begin(), usable.end()};
  std::string names;
  for (const auto* table : usable) {
    if (isa == table->isa) return {table};
    names += (names.empty() ? "" : ", ") + std::string(table->isa);
  }
  throw Error(ErrorCode::kInvalidArgument, "--isa", "instruction set", names, std::string(isa));
}

void Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const Options options = ParseOptions(argc, argv);
  const auto tables = TablesFor(options.isa);
  const uint64_t bytes = ParseSize(options.memory, "--memory");
  const uint64_t least = kLargestPiece * static_cast<uint64_t>(AvailableCpus());
  if (bytes < least) {
    throw Error(ErrorCode::kInvalidArgument, "--memory", "memory for operands",
                "at least " + FormatSize(least), FormatSize(bytes));
  }
  Budget budget;
  const Memory memory(budget, bytes);
  if (options.tiles) {
    return RunTileTable(tables, memory, AvailableCpus(), std::string(options.json));
  }
  for (const auto* table : tables) {
    const Context context{*table, memory, AvailableCpus()};
    RegisterProbes(context);
    RegisterMatMulTiles(context);
    RegisterMatMulFloat(context);
    RegisterLowRank(context);
    RegisterRows(context);
    RegisterRowBatches(context);
    RegisterNarrow(context);
    RegisterRepack(context);
    RegisterElementwise(context);
    RegisterAttention(context);
  }
  benchmark::AddCustomContext("processor", CpuModelName());
  benchmark::AddCustomContext("operands", FormatSize(memory.bytes().size()));
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace hearth::micro

int main(int argc, char** argv) {
  try {
    hearth::micro::Run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
