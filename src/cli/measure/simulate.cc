// hearth simulate: how fast a device that is not here would decode.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/measure/simulate_report.h"
#include "cli/options/command_files.h"
#include "cli/options/option_values.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "pipeline/streamed_ffns.h"
#include "planner/simulator/simulator_plot.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

// A size of the whole program, or a share of the FFNs' weights.
struct SimMemory {
  std::optional<uint64_t> bytes;
  double share = 1;
};

struct SimulateCommand {
  std::string device;
  std::string model;
  std::string profile;
  std::string trace;
  std::string plot;
  std::vector<SimMemory> memories;
  std::vector<SimPipeline> pipelines = {SimPipeline::kCluster};
  SimSystem system = SimSystem::kHearth;
  SimOptions options;
  SyntheticOptions accesses;
  uint64_t texts = 1;
  bool json = false;
  bool print_device = false;
};

// The others are caches of their own.
bool TakesPolicy(SimPipeline pipeline) {
  return pipeline != SimPipeline::kLlmFlash && pipeline != SimPipeline::kMmap;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

SimMemory ParseMemory(const std::string& word) {
  if (!word.ends_with('%')) return {.bytes = ParseSize(word, "--memory"), .share = 0};
  double percent = 0;
  const char* const end = word.data() + word.size() - 1;
  const auto [stop, error] = std::from_chars(word.data(), end, percent);
  if (error != std::errc() || stop != end || !(percent >= 0 && percent <= 100)) {
    throw UsageError("--memory: expected sizes or shares of the FFNs like 7G,50%, found '" +
                     Printable(word) + "'");
  }
  return {.bytes = std::nullopt, .share = percent / 100};
}

SimPipeline ParsePipeline(const std::string& word) {
  std::string names;
  for (const SimPipeline pipeline : AllSimPipelines()) {
    if (word == SimPipelineName(pipeline)) return pipeline;
    names += (names.empty() ? "" : ", ") + std::string(SimPipelineName(pipeline));
  }
  throw UsageError(
      fmt::format("--pipeline: expected some of {}, found '{}'", names, Printable(word)));
}

SimulatedPoint PointOf(const SimModel& model, SimPipeline pipeline, const SimMemory& memory) {
  SimulatedPoint point;
  point.pipeline = pipeline;
  const uint64_t ffns = SimFfnBytes(model, pipeline);
  uint64_t cache = 0;
  if (memory.bytes) {
    cache = std::min(SimCacheBytes(model, pipeline, *memory.bytes), ffns);
    point.memory_bytes = *memory.bytes;
  } else {
    cache = static_cast<uint64_t>(memory.share * static_cast<double>(ffns));
    const bool mapped = pipeline == SimPipeline::kMmap;
    point.memory_bytes =
        cache + (mapped ? model.dense_bytes + model.runtime_bytes : model.resident_bytes());
  }
  point.result.cache_bytes = cache;
  point.cache_share = static_cast<double>(cache) / static_cast<double>(ffns);
  return point;
}

SimInputs ReadInputs(const SimulateCommand& command) {
  SimInputs inputs{.device = ResolveSimDevice(command.device),
                   .system = command.system,
                   .model = SimModelOf(ResolvePlannedShape(command.model), command.system),
                   .profile = std::nullopt,
                   .trace = std::nullopt};
  if (!command.profile.empty()) inputs.profile = LoadProfile(command.profile);
  if (!command.trace.empty()) {
    inputs.trace = ReadAccessSequence(OpenFileReader(command.trace));
    if (inputs.trace->unit == AccessUnit::kExperts) inputs.model = WholeExperts(inputs.model);
  }
  return inputs;
}

std::unique_ptr<SimAccesses> MakeAccesses(const SimulateCommand& command, const SimInputs& inputs,
                                          uint64_t text) {
  if (inputs.trace) return std::make_unique<RecordedAccesses>(inputs.model, *inputs.trace);
  SyntheticOptions options = command.accesses;
  options.seed += text;
  return std::make_unique<SyntheticAccesses>(inputs.model, options,
                                             inputs.profile ? &*inputs.profile : nullptr);
}

void WritePlot(const SimulateCommand& command, const SimInputs& inputs,
               const std::vector<SimulatedPoint>& points) {
  std::vector<SimPoint> drawn;
  for (const SimulatedPoint& point : points) {
    drawn.push_back(
        {point.pipeline, static_cast<double>(point.memory_bytes) / 1e9, point.result.tok_s()});
  }
  const std::string svg =
      PlotSimulation(fmt::format("{} on {}", inputs.model.name, inputs.device.name), drawn);
  WriteFileAtomically(command.plot, svg);
}

void CheckSimulatedFiles(const SimulateCommand& command) {
  CheckFiles({{"--device", PathUnlessName(command.device)},
              {"--model", PathUnlessName(command.model)},
              {"--profile", command.profile},
              {"--trace", command.trace}},
             {{"--plot", command.plot}});
}

int RunSimulate(const SimulateCommand& command) {
  if (command.print_device) {
    WriteOutput(SimDeviceJson(ResolveSimDevice(command.device)));
    return kExitDone;
  }
  CheckSimulatedFiles(command);
  if (!command.plot.empty()) CheckWritable(command.plot);  // before the work
  const SimInputs inputs = AsUsage([&] { return ReadInputs(command); });
  std::vector<SimMemory> memories = command.memories;
  if (memories.empty()) memories.push_back({.bytes = inputs.device.memory_bytes, .share = 0});
  std::vector<SimulatedPoint> points;
  for (const SimPipeline pipeline : command.pipelines) {
    for (const SimMemory& memory : memories) {
      points.push_back(PointOf(inputs.model, pipeline, memory));
    }
  }
  CatchInterrupts(true);
  ProgressLine progress("simulating", ProgressUnit::kShare);
  const uint64_t runs = points.size() * command.texts;
  for (uint64_t run = 0; run < runs; ++run) {
    SimulatedPoint& point = points[run / command.texts];
    const uint64_t text = run % command.texts;
    SimOptions options = command.options;
    options.seed += text;
    options.strategy.system = command.system;
    options.strategy.pipeline = point.pipeline;
    if (!TakesPolicy(point.pipeline)) options.policy.reset();
    options.cache_bytes = point.result.cache_bytes;
    if (inputs.trace) options.gate_fires = 1;  // it names the neurons that are active
    options.cancel = &InterruptFlag();
    options.progress = [&](int64_t done, int64_t total) {
      progress.Update(run * static_cast<uint64_t>(total) + static_cast<uint64_t>(done),
                      runs * static_cast<uint64_t>(total));
    };
    const auto accesses = AsUsage([&] { return MakeAccesses(command, inputs, text); });
    SimResult result = Simulate(inputs.device, inputs.model, options, *accesses);
    if (text == 0) {
      point.result = std::move(result);
    } else {
      point.result.Add(result);
    }
  }
  if (!command.plot.empty()) WritePlot(command, inputs, points);
  WriteOutput(command.json ? DumpJson(SimulationJson(inputs, points))
                           : SimulationText(inputs, points));
  return kExitDone;
}

void CheckSimulateUsage(const SimulateCommand& options, const CLI::App& command) {
  if (options.print_device) {
    for (const CLI::Option* option : command.get_options()) {
      const std::string name = option->get_name();
      if (option->count() > 0 && name != "--device" && name != "--print-device") {
        throw UsageError(name + " has no effect with --print-device");
      }
    }
    return;
  }
  if (options.model.empty()) throw UsageError("simulate needs --model");
  if (options.options.policy &&
      std::none_of(options.pipelines.begin(), options.pipelines.end(), TakesPolicy)) {
    throw UsageError("--cache-policy has no effect on llmflash and mmap");
  }
  const auto refuse = [&](bool applies, std::initializer_list<const char*> names,
                          const char* with) {
    for (const char* name : names) {
      if (applies && command.count(name) > 0) {
        throw UsageError(fmt::format("{} has no effect with {}", name, with));
      }
    }
  };
  const bool is_mapped = std::all_of(options.pipelines.begin(), options.pipelines.end(),
                                     [](SimPipeline p) { return p == SimPipeline::kMmap; });
  refuse(!options.trace.empty(),
         {"--active", "--skew", "--topic-share", "--gate-fires", "--router-topic-share",
          "--router-bias", "--profile", "--texts"},
         "--trace");
  const bool reads_gates_first = options.system == SimSystem::kPowerInfer2;
  refuse(reads_gates_first, {"--reads"}, "--system powerinfer-2, which reads gates first");
  const bool has_cluster = std::find(options.pipelines.begin(), options.pipelines.end(),
                                     SimPipeline::kCluster) != options.pipelines.end();
  refuse(!has_cluster, {"--reads"}, "pipelines other than cluster");
  refuse(!options.profile.empty(), {"--active", "--skew"}, "--profile");
  // Every neuron is computed.
  refuse(is_mapped, {"--active", "--skew", "--topic-share", "--gate-fires"}, "--pipeline mmap");
}

void AddInputs(CLI::App& command, SimulateCommand& options) {
  command
      .add_option("--device", options.device,
                  fmt::format("a device file (JSON), or {}", fmt::join(SimDeviceNames(), ", ")))
      ->option_text("FILE|NAME")
      ->required()
      ->check(NotEmpty());
  command.add_option("--model", options.model, "a shape (as for plan) or a shape file (.json)")
      ->option_text("SHAPE")
      ->check(NotEmpty());
  command
      .add_option("--profile", options.profile,
                  "how often each neuron fires, of hearth profile (a power law)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      .add_option("--trace", options.trace,
                  "recorded accesses, of hearth profile --trace or a .route.csv (synthetic ones)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command.add_flag("--print-device", options.print_device,
                   "print the device file instead, to start another from");
}

void AddRun(CLI::App& command, SimulateCommand& options) {
  command
      .add_option_function<std::string>(
          "--memory",
          [&options](const std::string& text) {
            for (const std::string& word : Words(text)) {
              options.memories.push_back(AsUsage([&] { return ParseMemory(word); }));
            }
          },
          "memory of the whole program, or shares of the FFNs' weights: 7G,12G,50% (the device's)")
      ->option_text("SIZE|P%,...");
  command
      .add_option_function<std::string>(
          "--pipeline",
          [&options](const std::string& text) {
            options.pipelines.clear();
            for (const std::string& word : Words(text)) {
              options.pipelines.push_back(ParsePipeline(word));
            }
          },
          "cluster, matrix, blocking, llmflash (LLM in a Flash), mmap (dense, a mapped file) "
          "(cluster)")
      ->option_text("NAME,...");
  command
      .add_option_function<std::string>(
          "--cache-policy",
          [&options](const std::string& name) {
            options.options.policy = CachePolicyFromName(name);
            if (!options.options.policy || options.options.policy == CachePolicyKind::kStatic) {
              throw UsageError("--cache-policy: expected a policy that learns of " +
                               CachePolicyNames(", ") + ", found '" + Printable(name) + "'");
            }
          },
          "of cluster, matrix and blocking: " + CachePolicyNames(", ") +
              " (layer-lfu; of powerinfer-2 two-queue)")
      ->option_text("NAME");
  command.add_option("--tokens", options.options.tokens, "tokens to measure (256)")
      ->option_text("N")
      ->check(WholeIn(1, 10'000'000));
  command
      .add_option("--texts", options.texts,
                  "number of texts with that many tokens each; every text starts with a new cache, "
                  "and results cover all texts (1)")
      ->option_text("N")
      ->check(WholeIn(1, 10'000));
  command.add_option("--warmup", options.options.warmup_tokens, "tokens before them (64)")
      ->option_text("N")
      ->check(WholeIn(0, 10'000'000));
}

void AddStrategy(CLI::App& command, SimulateCommand& options) {
  command
      .add_option_function<std::string>(
          "--system",
          [&options](const std::string& name) {
            options.system = name == SimSystemName(SimSystem::kPowerInfer2)
                                 ? SimSystem::kPowerInfer2
                                 : SimSystem::kHearth;
          },
          "whose files and strategies: this engine's, or those of the paper (hearth)")
      ->option_text("hearth|powerinfer-2")
      ->check(CLI::IsMember(
          {SimSystemName(SimSystem::kHearth), SimSystemName(SimSystem::kPowerInfer2)}));
  command
      .add_option_function<std::string>(
          "--reads",
          [&options](const std::string& name) {
            options.options.strategy.gates_first = name.starts_with("gates-first");
            options.options.strategy.piece_bytes = name.ends_with("pieces") ? kNeuronPieceBytes : 0;
          },
          "of cluster: missing neurons whole, or the gate first and the rest where it fires; "
          "either in pieces of 4 KiB (whole)")
      ->option_text("whole|gates-first|pieces|gates-first-pieces")
      ->check(CLI::IsMember({"whole", "gates-first", "pieces", "gates-first-pieces"}));
  command
      .add_option("--cluster", options.options.strategy.cluster_neurons,
                  "neurons that a core takes at a time (16 to 256, by how many are ready; of "
                  "powerinfer-2 32)")
      ->option_text("N")
      ->check(WholeIn(1, 1'000'000));
}

void AddStatistics(CLI::App& command, SimulateCommand& options) {
  command
      .add_option("--active", options.accesses.active,
                  "mean share of an FFN's neurons that a token lists (0.1)")
      ->option_text("SHARE");
  command
      .add_option("--skew", options.accesses.skew,
                  "share of neurons with 80% of activations (0.28)")
      ->option_text("SHARE");
  command
      .add_option("--topic-share", options.accesses.topic_share,
                  "how slowly the active set moves, 0 to 0.999 (0.8)")
      ->option_text("SHARE");
  command
      .add_option("--gate-fires", options.options.gate_fires,
                  "share of listed neurons whose gate fires (0.8)")
      ->option_text("SHARE")
      ->check(NumberIn(0.0, 1.0));
  command
      .add_option("--router-topic-share", options.accesses.router_topic_share,
                  "how slowly the chosen experts change, 0 to 1 (0.42)")
      ->option_text("SHARE");
  command
      .add_option("--router-bias", options.accesses.router_bias,
                  "how unevenly experts are chosen; 0: all alike (0.82)")
      ->option_text("BIAS");
  AddSeedOption(command, options.accesses.seed, "same seed, same accesses (0)");
}

}  // namespace

void AddSimulateCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<SimulateCommand>();
  CLI::App* command =
      app.add_subcommand("simulate", "Estimate speed on another device, such as a phone");
  AddInputs(*command, *options);
  AddRun(*command, *options);
  AddStrategy(*command, *options);
  AddStatistics(*command, *options);
  AddFileOption(*command, "--plot", options->plot, "picture to write: speed by memory (SVG)");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, command, &action] {
    CheckSimulateUsage(*options, *command);
    options->options.seed = options->accesses.seed;
    action = [options] { return RunSimulate(*options); };
  });
}

}  // namespace hearth::cli
