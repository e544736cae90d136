#include "cli/streaming_options.h"

#include <fmt/format.h>

#include "base/units.h"
#include "cli/option_values.h"

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

std::string PolicyNames() {
  std::string names;
  for (const CachePolicyKind kind : AllCachePolicies()) {
    names += (names.empty() ? "" : "|") + std::string(CachePolicyName(kind));
  }
  return names;
}

std::string PipelineNames() {
  std::string names;
  for (const PipelineKind kind : AllPipelines()) {
    names += (names.empty() ? "" : "|") + std::string(PipelineName(kind));
  }
  return names;
}

// An option of one word that `parse` takes or refuses.
using ParseWord = bool (*)(StreamingArguments& to, const std::string& text);

void AddWord(CLI::App& command, StreamingArguments& arguments, const char* name,
             const std::string& help, const std::string& values, ParseWord parse) {
  const auto take = [&arguments, name, values, parse](const std::string& text) {
    if (arguments.given.empty()) arguments.given = name;
    if (!parse(arguments, text)) {
      throw UsageError(fmt::format("{}: expected {}, found '{}'", name, values, Printable(text)));
    }
  };
  command.add_option_function<std::string>(name, take, help)->option_text(values);
}

}  // namespace

void AddStreamingOptions(CLI::App& command, StreamingArguments& arguments) {
  const auto add = [&](const char* name, const std::string& help, const std::string& values,
                       ParseWord parse) { AddWord(command, arguments, name, help, values, parse); };
  add("--pipeline",
      "of a streamed model: compute while reading (default cluster), while reading the same "
      "matrix, "
      "after reading, or as LLM in a Flash does (after reading, with the window as cache policy "
      "and nothing pinned)",
      PipelineNames(), [](StreamingArguments& to, const std::string& text) {
        const auto kind = PipelineFromName(text);
        to.options.pipeline.pipeline = kind.value_or(PipelineKind::kCluster);
        return kind.has_value();
      });
  add("--io", "how a streamed model is read (default auto: io_uring where it is permitted)",
      "auto|io_uring|pread", [](StreamingArguments& to, const std::string& text) {
        to.options.io.backend = text == "io_uring" ? IoBackend::kIoUring
                                : text == "pread"  ? IoBackend::kPread
                                                   : IoBackend::kAuto;
        return text == "auto" || text == "io_uring" || text == "pread";
      });
  add("--cache-policy",
      fmt::format("which neurons of a streamed model stay in its cache (default {})",
                  CachePolicyName(kDefaultCachePolicy)),
      PolicyNames(), [](StreamingArguments& to, const std::string& text) {
        const auto kind = CachePolicyFromName(text);
        to.options.pipeline.policy = kind.value_or(to.options.pipeline.policy);
        to.has_policy = true;
        return kind.has_value();
      });
  command
      .add_option_function<double>(
          "--pinned",
          [&arguments](double share) {
            if (arguments.given.empty()) arguments.given = "--pinned";
            arguments.options.pinned_share = share;
          },
          "of a streamed model's memory for neurons, the share that is pinned to those that fire "
          "most (default 0.5); the cache has the rest")
      ->option_text("SHARE")
      ->check(CLI::Range(0.0, 1.0));
}

void CheckStreaming(const StreamingArguments& arguments) {
  if (arguments.options.pipeline.pipeline == PipelineKind::kLlmFlash && arguments.has_policy) {
    throw UsageError("--cache-policy has no effect with --pipeline llmflash, whose window it is");
  }
}

void CheckStreamingUsed(const StreamingArguments& arguments, const Engine& engine) {
  if (arguments.given.empty() || engine.streamed() != nullptr) return;
  throw UsageError(arguments.given +
                   " has no effect: the model is in memory as a whole (a smaller --memory would "
                   "stream a packed one)");
}

nlohmann::ordered_json IoJson(const Engine& engine, const StreamCounts& counts, int64_t tokens,
                              std::optional<double> miss_rate_p99) {
  if (engine.streamed() == nullptr) return nullptr;
  const BundleStore& store = engine.streamed()->store();
  const StreamPlan& plan = store.plan();
  const StreamShape shape = store.source().shape();
  nlohmann::ordered_json p99 = nullptr;
  if (miss_rate_p99) p99 = *miss_rate_p99;
  const double thread_seconds = counts.wall_seconds * engine.threads();
  return {{"backend", store.source().file->backend()},
          {"direct", store.source().file->direct()},
          {"pipeline", PipelineName(engine.streamed()->options().pipeline)},
          {"cache_policy", CachePolicyName(engine.streamed()->options().cache_policy())},
          {"gates_pinned", plan.holds_gates},
          {"pinned_share", static_cast<double>(plan.pinned_slots(shape)) /
                               static_cast<double>(shape.all_neurons())},
          {"cache_share",
           static_cast<double>(plan.cache_slots) / static_cast<double>(shape.all_neurons())},
          {"hit_rate", 1 - MissRate(counts)},
          {"miss_rate_p99", p99},
          {"bytes_read_per_token", PerToken(static_cast<double>(counts.bytes_read), tokens)},
          {"reads_per_token", PerToken(static_cast<double>(counts.reads), tokens)},
          {"wait_share", thread_seconds > 0 ? counts.idle_seconds / thread_seconds : 0}};
}

std::string StreamedText(const Engine& engine) {
  if (engine.streamed() == nullptr) return "";
  const BundleStore& store = engine.streamed()->store();
  const StreamPlan& plan = store.plan();
  const StreamShape shape = store.source().shape();
  const auto percent = [&](int64_t neurons) {
    return 100.0 * static_cast<double>(neurons) / static_cast<double>(shape.all_neurons());
  };
  return fmt::format(
      "{}{:.0f}% of neurons pinned, {:.0f}% cached ({}), the rest read with {}{}, {} pipeline\n",
      plan.holds_gates ? "all gates pinned; up and down: " : "", percent(plan.pinned_slots(shape)),
      percent(plan.cache_slots), CachePolicyName(engine.streamed()->options().cache_policy()),
      store.source().file->backend(),
      store.source().file->direct() ? " past the page cache" : " through the page cache",
      PipelineName(engine.streamed()->options().pipeline));
}

std::string IoText(const StreamCounts& counts, int64_t tokens) {
  return fmt::format(
      "{:.1f}% of neurons found in memory; {:.0f} reads, {} per token",
      100 * (1 - MissRate(counts)), PerToken(static_cast<double>(counts.reads), tokens),
      FormatSize(static_cast<uint64_t>(PerToken(static_cast<double>(counts.bytes_read), tokens))));
}

}  // namespace hearth::cli
