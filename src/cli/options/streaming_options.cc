#include "cli/options/streaming_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "cli/help_format.h"
#include "cli/options/option_values.h"
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

// Of values, as an option lists them.
template <typename Value>
std::string NamesOf(std::span<const Value> values, const char* (*name)(Value)) {
  std::string names;
  for (const Value value : values) names += (names.empty() ? "" : "|") + std::string(name(value));
  return names;
}

// An option of one word that `parse` takes or refuses.
using ParseWord = bool (*)(StreamingOptions& to, const std::string& text);

void AddWord(CLI::App& command, StreamingArguments& arguments, const char* name,
             const std::string& help, const std::string& values, ParseWord parse) {
  const auto take = [&arguments, name, values, parse](const std::string& text) {
    arguments.given.emplace_back(name);
    if (!parse(arguments.options, text)) {
      throw UsageError(fmt::format("{}: expected {}, found '{}'", name, values, Printable(text)));
    }
  };
  command.add_option_function<std::string>(name, take, help)
      ->option_text(values)
      ->group(kExperimentGroup);
}

bool TakeIo(StreamingOptions& options, const std::string& text) {
  options.io.backend = text == "io_uring" ? IoBackend::kIoUring
                       : text == "pread"  ? IoBackend::kPread
                                          : IoBackend::kAuto;
  return text == "auto" || text == "io_uring" || text == "pread";
}

bool TakeMergeGap(StreamingOptions& options, const std::string& text) {
  options.pipeline.merge_gap_bytes.reset();
  if (text == "none") return true;
  const uint64_t bytes = AsUsage([&] { return ParseSize(text, "--merge-gap"); });
  options.pipeline.merge_gap_bytes =
      static_cast<uint32_t>(std::min<uint64_t>(bytes, kMaxGapBytes + 1));
  return bytes <= kMaxGapBytes;
}

bool TakeReads(StreamingOptions& options, const std::string& text) {
  const bool in_pieces = text == "pieces" || text == "gates-first-pieces";
  options.pipeline.gates_first = text == "gates-first" || text == "gates-first-pieces";
  options.pipeline.piece_bytes = in_pieces ? kNeuronPieceBytes : 0;
  return in_pieces || text == "whole" || text == "gates-first";
}

}  // namespace

void AddStreamingOptions(CLI::App& command, StreamingArguments& arguments) {
  const auto add = [&](const char* name, const std::string& help, const std::string& values,
                       ParseWord parse) { AddWord(command, arguments, name, help, values, parse); };
  add("--pipeline",
      "how a packed model that does not fit overlaps reading and computing (cluster); the others "
      "are there to be compared with: docs/architecture.md",
      NamesOf(AllPipelines(), PipelineName),
      [](StreamingOptions& options, const std::string& text) {
        const auto kind = PipelineFromName(text);
        options.pipeline.pipeline = kind.value_or(PipelineKind::kCluster);
        return kind.has_value();
      });
  add("--reads",
      "of a neuron that is missing read all at once, or its gate first and the rest only where it "
      "fires; either in pieces of 4 KiB, for flash that likes them (whole)",
      "whole|gates-first|pieces|gates-first-pieces", TakeReads);
  add("--io", "how weights are read (auto: io_uring where it is permitted)", "auto|io_uring|pread",
      TakeIo);
  add("--cache-policy",
      fmt::format("which neurons or experts the cache keeps ({})",
                  CachePolicyName(kDefaultCachePolicy)),
      CachePolicyNames("|"), [](StreamingOptions& options, const std::string& text) {
        const auto kind = CachePolicyFromName(text);
        options.pipeline.policy = kind.value_or(options.pipeline.policy);
        return kind.has_value();
      });
  add("--lookahead",
      "read what the next layer will probably need while the disk is idle (auto: where that is "
      "faster)",
      NamesOf(AllLookaheads(), LookaheadName),
      [](StreamingOptions& options, const std::string& text) {
        const auto lookahead = LookaheadFromName(text);
        options.pipeline.lookahead = lookahead.value_or(Lookahead::kAuto);
        return lookahead.has_value();
      });
  add("--merge-gap",
      fmt::format("join reads that are at most SIZE apart ({})", FormatSize(kDefaultMergeGapBytes)),
      "SIZE|none", TakeMergeGap);
  command
      .add_option_function<double>(
          "--pinned",
          [&arguments](double share) {
            arguments.given.emplace_back("--pinned");
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
            arguments.given.emplace_back("--io-device");
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

void CheckStreaming(const StreamingArguments& arguments) {
  const auto was_given = [&](const char* name) {
    return std::find(arguments.given.begin(), arguments.given.end(), name) != arguments.given.end();
  };
  const PipelineKind pipeline = arguments.options.pipeline.pipeline;
  if (was_given("--cache-policy") && pipeline == PipelineKind::kLlmFlash) {
    throw UsageError("--cache-policy has no effect with --pipeline llmflash, whose window it is");
  }
  if (was_given("--reads") && pipeline != PipelineKind::kCluster) {
    throw UsageError(
        fmt::format("--reads has no effect with --pipeline {}: only cluster can choose",
                    PipelineName(pipeline)));
  }
  const DecodeOptions decode = arguments.options.pipeline.decode();
  if (was_given("--merge-gap") && (decode.gates_first || decode.piece_bytes > 0)) {
    throw UsageError(fmt::format("--merge-gap has no effect with --reads {}",
                                 decode.gates_first
                                     ? "gates-first: halves of bundles are never neighbours"
                                     : "pieces, which are not to be joined"));
  }
  if (was_given("--lookahead") && pipeline != PipelineKind::kCluster) {
    throw UsageError(
        fmt::format("--lookahead has no effect with --pipeline {}: only cluster reads ahead",
                    PipelineName(pipeline)));
  }
}

void CheckStreamingUsed(const StreamingArguments& arguments, const Engine& engine) {
  for (const std::string& name : arguments.given) {
    if (!engine.is_streamed()) {
      throw UsageError(
          name +
          " has no effect: the model is in memory as a whole (a smaller --memory would "
          "stream it)");
    }
    const StreamedMatrices* matrices = engine.streamed_matrices();
    if (name == "--lookahead" && matrices == nullptr &&
        !CanLookAhead(engine.model().spec(), engine.mode())) {
      throw UsageError(name +
                       " has no effect: only predictors of layers without experts can be asked "
                       "ahead of time");
    }
    if (name == "--reads" && matrices == nullptr) {
      if (engine.streamed()->store().plan().holds_gates &&
          engine.streamed()->options().gates_first) {
        throw UsageError(name + " gates-first has no effect: all gates are in memory");
      }
      if (engine.mode() == FfnMode::kDense) {
        throw UsageError(name + " has no effect: in the dense mode every neuron is needed");
      }
    }
    if (matrices == nullptr || name == "--io" || name == "--io-device") continue;
    if (name != "--cache-policy") {
      throw UsageError(name +
                       " has no effect: it is about single neurons, and the model is not packed");
    }
    if (!matrices->is_mixture()) {
      throw UsageError(
          name +
          " has no effect: every token needs all of a dense model, so what is in memory "
          "stays there");
    }
  }
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
      "{} does not fit into memory: {}; packing would not change that, for with {} "
      "every neuron adds something\n",
      engine.model().path(),
      engine.streamed_matrices()->is_mixture()
          ? "experts that are not there are read when a token needs them"
          : "the rest of it is read for every token",
      FfnActivationName(activation));
}

}  // namespace hearth::cli
