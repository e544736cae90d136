#include "cli/options/streaming_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "cli/help_format.h"
#include "cli/options/option_values.h"
#include "engine/streaming_choices.h"
#include "ops/sparse_ffn.h"
#include "planner/simulator/device_model.h"
#include "tensor/op_names.h"

namespace hearth::cli {
namespace {

double PerToken(double all, int64_t tokens) {
  return tokens > 0 ? all / static_cast<double>(tokens) : 0;
}

double MissRate(const StreamCounts& counts) {
  return counts.neurons > 0
             ? static_cast<double>(counts.misses) / static_cast<double>(counts.neurons)
             : 0;
}

// What an option's setting is called below the command line, and the other way.
std::string FlagOf(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

std::string HelpOf(const std::string& field) {
  if (field == "pipeline") {
    return "how a packed model that does not fit overlaps reading and computing (cluster); the "
           "others are there to be compared with: docs/architecture.md";
  }
  if (field == "reads") {
    return "read all of a missing neuron at once, or its gate first and the rest only if that "
           "fires "
           "(whole)";
  }
  if (field == "io") return "how weights are read (auto: io_uring where it is permitted)";
  if (field == "io_thread") {
    return "who reads neurons: whichever thread has time, or one of the threads, which computes "
           "only while nothing is to be read (shared)";
  }
  if (field == "cache_policy") {
    return fmt::format("which neurons or experts the cache keeps ({})",
                       CachePolicyName(kDefaultCachePolicy));
  }
  return "read what the next layer will probably need while the disk is idle (auto: where that is "
         "faster)";
}

void AddWord(CLI::App& command, StreamingArguments& arguments, const StreamingWord& word) {
  const auto take = [&arguments, &word](const std::string& text) {
    arguments.given.emplace_back(word.field);
    if (!word.take(arguments.options, text)) {
      throw UsageError(fmt::format("{}: expected {}, found '{}'", FlagOf(word.field), word.values,
                                   Printable(text)));
    }
  };
  command.add_option_function<std::string>(FlagOf(word.field), take, HelpOf(word.field))
      ->option_text(word.values)
      ->group(kExperimentGroup);
}

}  // namespace

void AddStreamingOptions(CLI::App& command, StreamingArguments& arguments) {
  for (const StreamingWord& word : StreamingWords()) AddWord(command, arguments, word);
  command
      .add_option_function<std::string>(
          "--merge-gap",
          [&arguments](const std::string& text) {
            arguments.given.emplace_back("merge_gap");
            std::optional<uint64_t> gap;
            if (text != "none") gap = AsUsage([&] { return ParseSize(text, "--merge-gap"); });
            if (TakeMergeGap(arguments.options, gap)) return;
            throw UsageError(fmt::format("--merge-gap: expected at most {} or none, found '{}'",
                                         FormatSize(kMaxGapBytes), Printable(text)));
          },
          fmt::format("join reads that are at most SIZE apart ({})",
                      FormatSize(kDefaultMergeGapBytes)))
      ->option_text("SIZE|none")
      ->group(kExperimentGroup);
  command
      .add_option_function<double>(
          "--pinned",
          [&arguments](double share) {
            arguments.given.emplace_back("pinned");
            arguments.options.pinned_share = share;
          },
          "share of the memory for neurons that the most active ones keep for good; the rest is "
          "cache (0.5)")
      ->option_text("SHARE")
      ->group(kExperimentGroup)
      ->check(NumberIn(0.0, 1.0));
}

void AddIoDeviceOption(CLI::App& command, StreamingArguments& arguments) {
  command
      .add_option_function<std::string>(
          "--io-device",
          [&arguments](const std::string& name) {
            arguments.given.emplace_back("io_device");
            SimDevice device = ResolveSimDevice(name);
            arguments.options.device = {.flash = std::move(device.flash), .core = device.io_kind};
          },
          fmt::format("serve a streamed model from memory, beside --memory, in the time that the "
                      "flash of another device takes: {}, or a file as simulate takes it",
                      fmt::join(SimDeviceNames(), ", ")))
      ->option_text("NAME|FILE")
      ->excludes(command.get_option("--io"))
      ->excludes(command.get_option("--merge-gap"));
}

std::vector<std::string> GivenFlags(const StreamingArguments& arguments) {
  std::vector<std::string> flags;
  for (const std::string& field : arguments.given) flags.push_back(FlagOf(field));
  return flags;
}

namespace {

void RefuseIdle(const std::optional<IdleSetting>& idle) {
  if (!idle) return;
  const std::string with = idle->other.empty() ? "" : " with " + FlagOf(idle->other);
  throw UsageError(fmt::format("{} has no effect{}: {}", FlagOf(idle->field), with, idle->why));
}

}  // namespace

void CheckStreaming(const StreamingArguments& arguments) {
  RefuseIdle(FindContradiction(arguments.options, arguments.given));
}

void CheckStreamingUsed(const StreamingArguments& arguments, const Engine& engine) {
  RefuseIdle(FindIdleSetting(engine, arguments.given));
}

namespace {

// How a model is streamed, for reports.
struct StreamFacts {
  const AsyncFile& file;
  std::string unit;  // what is read and kept as one
  std::string pipeline;
  std::string policy;
  double pinned_share = 0;  // of all FFN weights
  double cache_share = 0;   // while no context uses KV pages
  bool gates_pinned = false;
};

StreamFacts FactsOf(const Engine& engine) {
  if (const StreamedMatrices* matrices = engine.streamed_matrices()) {
    const ExtentMap& map = matrices->map();
    const double share = static_cast<double>(matrices->plan().SlotsBeside(map.shape(), 0)) /
                         static_cast<double>(map.num_extents());
    const bool is_mixture = matrices->is_mixture();
    return {.file = matrices->file(),
            .unit = is_mixture ? "experts" : "matrices",
            .pipeline = "sequential",
            .policy = std::string(CachePolicyName(matrices->policy())),
            .pinned_share = is_mixture ? 0 : share,
            .cache_share = is_mixture ? share : 0};
  }
  const BundleStore& store = engine.streamed()->store();
  const auto all = static_cast<double>(store.source().shape().all_neurons());
  return {
      .file = *store.source().file,
      .unit = "neurons",
      .pipeline = PipelineName(engine.streamed()->options().pipeline),
      .policy = std::string(CachePolicyName(engine.streamed()->options().cache_policy())),
      .pinned_share = static_cast<double>(store.plan().pinned_slots(store.source().shape())) / all,
      .cache_share =
          static_cast<double>(store.plan().CacheSlotsBeside(store.source().shape(), 0)) / all,
      .gates_pinned = store.plan().holds_gates};
}

}  // namespace

nlohmann::ordered_json IoJson(const Engine& engine, const StreamCounts& counts, int64_t tokens,
                              std::optional<double> miss_rate_p99) {
  if (!engine.is_streamed()) return nullptr;
  const StreamFacts facts = FactsOf(engine);
  nlohmann::ordered_json p99 = nullptr;
  if (miss_rate_p99) p99 = *miss_rate_p99;
  const double thread_seconds = counts.wall_seconds * engine.threads();
  return {{"backend", facts.file.backend()},
          {"direct", facts.file.direct()},
          {"unit", facts.unit},
          {"pipeline", facts.pipeline},
          {"cache_policy", facts.policy},
          {"gates_pinned", facts.gates_pinned},
          {"pinned_share", facts.pinned_share},
          {"cache_share", facts.cache_share},
          {"hit_rate", 1 - MissRate(counts)},
          {"miss_rate_p99", p99},
          {"bytes_read_per_token", PerToken(static_cast<double>(counts.bytes_read), tokens)},
          {"reads_per_token", PerToken(static_cast<double>(counts.reads), tokens)},
          {"rests_left_per_token", PerToken(static_cast<double>(counts.rests_left), tokens)},
          {"reads_ahead_per_token", PerToken(static_cast<double>(counts.reads_ahead), tokens)},
          {"used_ahead_per_token", PerToken(static_cast<double>(counts.used_ahead), tokens)},
          {"wait_share", thread_seconds > 0 ? counts.idle_seconds / thread_seconds : 0}};
}

std::string StreamedText(const Engine& engine) {
  if (!engine.is_streamed()) return "";
  const StreamFacts facts = FactsOf(engine);
  std::string held;
  if (facts.pinned_share > 0 || facts.cache_share == 0) {
    held = fmt::format("{:.0f}% of {} pinned", 100 * facts.pinned_share, facts.unit);
  }
  if (facts.cache_share > 0) {
    const std::string of = held.empty() ? "of " + facts.unit + " " : "";
    held += fmt::format("{}{:.0f}% {}cached ({})", held.empty() ? "" : ", ",
                        100 * facts.cache_share, of, facts.policy);
  }
  return fmt::format(
      "{}{}, the rest read with {}{}, {} pipeline\n",
      facts.gates_pinned ? "all gates pinned; up and down: " : "", held, facts.file.backend(),
      facts.file.direct() ? " past the page cache" : " through the page cache", facts.pipeline);
}

std::string IoText(const Engine& engine, const StreamCounts& counts, int64_t tokens) {
  std::string left;
  if (counts.rests_left > 0) {
    left = fmt::format("; up and down of {:.1f}% of what was missing left out",
                       100 * static_cast<double>(counts.rests_left) /
                           static_cast<double>(std::max<int64_t>(counts.misses, 1)));
  }
  return fmt::format(
      "{:.1f}% of {} found in memory; {:.0f} reads, {} per token{}", 100 * (1 - MissRate(counts)),
      FactsOf(engine).unit, PerToken(static_cast<double>(counts.reads), tokens),
      FormatSize(static_cast<uint64_t>(PerToken(static_cast<double>(counts.bytes_read), tokens))),
      left);
}

std::string PackingAdvice(const Engine& engine) {
  if (engine.streamed_matrices() == nullptr) return "";
  const FfnActivation activation = MainFfn(engine.model().spec()).activation;
  if (CanSkipNeurons(activation)) {
    return fmt::format(
        "{} does not fit into memory and is not packed: with {} most neurons stay "
        "silent, so 'hearth pack' makes a file that runs faster here\n",
        engine.model().path(), FfnActivationName(activation));
  }
  return fmt::format(
      "{} does not fit into memory: {} ('hearth pack' would not help: with {} every neuron is "
      "always "
      "active)\n",
      engine.model().path(),
      engine.streamed_matrices()->is_mixture()
          ? "experts that are not in memory are read when a token needs them"
          : "the rest of it is read from the disk for every token",
      FfnActivationName(activation));
}

}  // namespace hearth::cli
