// hearth bench: how fast a model runs here, and how much faster it could.
#include "measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/measure/bench_replay.h"
#include "cli/measure/bench_report.h"
#include "cli/measure/op_times_report.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/plan/settle_plan.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "import/open_model.h"
#include "model/registry.h"

namespace hearth::cli {
namespace {

constexpr int64_t kMostBenchTokens = int64_t{1} << 31;
constexpr int64_t kMostBenchSequences = 256;  // as many as a pass takes

struct BenchCommand {
  ModelOptions model;
  BenchOptions bench;
  ReplayArguments replay;
  bool json = false;
};

// "128,512", of at most `most` each.
std::vector<int64_t> ParseCounts(const std::string& flag, const char* of, int64_t most,
                                 const std::string& text) {
  std::vector<int64_t> counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;; ++at) {
    int64_t count = 0;
    const auto [stop, error] = std::from_chars(at, end, count);
    const bool ends = stop == end || *stop == ',';
    if (error != std::errc() || !ends || count < 1 || count > most) {
      throw UsageError(
          fmt::format("{}: expected numbers of {}, found '{}'", flag, of, Printable(text)));
    }
    counts.push_back(count);
    if (stop == end) return counts;
    at = stop;
  }
}

// A measurement that cannot fit is refused before the weights are read.
void CheckContext(const BenchCommand& options) {
  int64_t context = options.model.planned ? options.model.planned->context : options.model.context;
  if (context == 0) {
    const ModelSpec spec = ReadModelSpec(OpenModel(options.model.model, options.model.activation));
    context = std::min(spec.context_length, kDefaultContext);
  }
  const auto refuse = [&](const char* flag, int64_t most, int64_t found) {
    throw Error(ErrorCode::kInvalidArgument, flag, fmt::format("the context is {} tokens", context),
                fmt::format("at most {}", std::max<int64_t>(most, 0)), std::to_string(found));
  };
  for (const int64_t tokens : options.bench.prefill_tokens) {
    if (tokens > context) refuse("--prefill", context, tokens);
  }
  if (options.bench.decode_context >= context) {
    refuse("--context", context - 1, options.bench.decode_context);
  }
  const int64_t most = context - options.bench.decode_context;
  if (options.bench.decode_tokens > most) refuse("--decode", most, options.bench.decode_tokens);
}

int Measure(BenchCommand& options) {
  for (const int64_t sequences : options.bench.parallel) {
    options.model.kv_sequences = std::max(options.model.kv_sequences, sequences);
  }
  options.model.model = FindModel(options.model.model);
  SettlePlan(options.model);
  CheckContext(options);
  const auto engine = LoadEngine(options.model);
  const ProbeMemory memory(*engine);
  BenchResult result;
  {
    ProgressLine progress("measuring", ProgressUnit::kTokens);
    result = RunBench(*engine, memory, options.bench,
                      [&](uint64_t done, uint64_t total, const std::string& measure) {
                        progress.Update(done, total, measure);
                      });
  }
  WriteDeviceTrace(options.model.device, *engine);
  if (options.json) {
    nlohmann::ordered_json document = BenchJson(*engine, options.model, memory, result);
    document["profile"] = options.bench.profile ? ProfileJson(result) : nullptr;
    WriteOutput(DumpJson(document));
  } else {
    WriteOutput(BenchText(*engine, options.model, memory, result) +
                (options.bench.profile ? ProfileText(result) : ""));
  }
  return kExitDone;
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchCommand>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed, as a share of what the hardware allows");
  AddModelOptions(*command, options->model);
  AddModeOption(*command, options->model);
  AddIoDeviceOption(*command, options->model.streaming);
  command->get_option("MODEL")->required(false);  // --trace takes its place
  command
      ->add_option_function<std::string>(
          "--prefill",
          [options](const std::string& text) {
            options->bench.prefill_tokens =
                ParseCounts("--prefill", "tokens like 128,512", kMostBenchTokens, text);
          },
          "lengths of prompts in tokens (default 128,512)")
      ->option_text("N,...");
  command
      ->add_option_function<std::string>(
          "--parallel",
          [options](const std::string& text) {
            options->bench.parallel =
                ParseCounts("--parallel", "sequences like 2,8", kMostBenchSequences, text);
          },
          "numbers of sequences to decode together, a token of each in a pass (default none)")
      ->option_text("N,...");
  command->add_option("--decode", options->bench.decode_tokens, "tokens to decode (default 64)")
      ->option_text("N")
      ->check(WholeIn(1, kMostBenchTokens));
  command
      ->add_option("--context", options->bench.decode_context,
                   "tokens before those that are decoded (default 32)")
      ->option_text("N")
      ->check(WholeIn(1, kMostBenchTokens));
  command->add_flag("--repeat-context", options->bench.repeats_context,
                    "compute the first 256 tokens of --context alone and repeat their keys and "
                    "values: the speed of long contexts without the time to compute them");
  command->add_option("--reps", options->bench.repetitions, "how often, in turn (default 5)")
      ->option_text("R")
      ->check(WholeIn(1, 1000));
  command->add_flag("--profile", options->bench.profile,
                    "also print where the time goes, op by op");
  AddReplayOptions(*command, options->replay);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, command, &action] {
    CheckReplayUsage(*command, options->replay);
    action = [options] {
      return options->replay.trace.empty() ? Measure(*options)
                                           : Replay(options->replay, options->json);
    };
  });
}

}  // namespace hearth::cli
