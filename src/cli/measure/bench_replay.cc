#include "cli/measure/bench_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/command_files.h"
#include "cli/options/option_values.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "prepare/profile/replay_plot.h"
#include "sparsity/access_sequence.h"
#include "sparsity/cache_replay.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

constexpr std::array kDefaultCapacities = {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6};

// Calls parse(word) for each word between commas.
template <typename Parse>
void ForEachWord(std::string_view text, Parse&& parse) {
  for (;;) {
    const size_t end = text.find(',');
    parse(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::vector<CachePolicyKind> ParsePolicies(const std::string& text) {
  std::vector<CachePolicyKind> policies;
  ForEachWord(text, [&](std::string_view word) {
    const auto kind = CachePolicyFromName(word);
    if (!kind) {
      throw UsageError(fmt::format("--policy: expected some of {}, found '{}'",
                                   CachePolicyNames(", "), Printable(word)));
    }
    if (std::find(policies.begin(), policies.end(), *kind) != policies.end()) {
      throw UsageError(fmt::format("--policy: {} is named twice", word));
    }
    policies.push_back(*kind);
  });
  return policies;
}

std::vector<double> ParseCapacities(const std::string& text) {
  std::vector<double> capacities;
  ForEachWord(text, [&](std::string_view word) {
    double percent = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, percent);
    const bool good =
        error == std::errc() && stop + 1 == end && *stop == '%' && percent > 0 && percent <= 100;
    if (!good) {
      throw UsageError(
          "--capacity: expected shares of all neurons or experts like 5%,50%, found '" +
          Printable(text) + "'");
    }
    capacities.push_back(percent / 100);
  });
  return capacities;
}

double Rate(const ReplayResult& result, int64_t hits) {
  return static_cast<double>(hits) / static_cast<double>(result.accesses);
}

const char* UnitName(const AccessSequence& sequence) {
  return sequence.unit == AccessUnit::kExperts ? "experts" : "neurons";
}

nlohmann::ordered_json ReplayJson(const std::string& path, const AccessSequence& sequence,
                                  const ReplayResult& result) {
  nlohmann::ordered_json document = {{"trace", path},
                                     {"model", sequence.model_name},
                                     {"unit", UnitName(sequence)},
                                     {"layers", sequence.num_layers},
                                     {"keys", sequence.num_keys()},
                                     {"unused_keys", result.unused_keys},
                                     {"accesses", result.accesses},
                                     {"passes", sequence.num_passes()},
                                     {"working_set",
                                      {{"slots", result.working_set.keys},
                                       {"lru_hits_nothing", result.working_set.lru_hits_nothing}}},
                                     {"points", nlohmann::ordered_json::array()}};
  for (const ReplayPoint& point : result.points) {
    nlohmann::ordered_json policies = nlohmann::ordered_json::array();
    for (const ReplayHits& hits : point.policies) {
      nlohmann::ordered_json closed = nullptr;
      if (point.belady_hits > point.lru_hits) closed = hits.gap_closed;
      policies.push_back({{"policy", CachePolicyName(hits.policy)},
                          {"hit_rate", Rate(result, hits.hits)},
                          {"gap_closed", closed}});
    }
    document["points"].push_back({{"capacity", point.capacity},
                                  {"slots", point.num_slots},
                                  {"lru_hit_rate", Rate(result, point.lru_hits)},
                                  {"belady_hit_rate", Rate(result, point.belady_hits)},
                                  {"policies", std::move(policies)}});
  }
  return document;
}

// A row of percentages: cell(point) is a share, below 0 for none.
template <typename Cell>
std::string HitRateRow(std::string_view name, const ReplayResult& result, Cell&& cell) {
  std::string row = fmt::format("{:<14}", name);
  for (const ReplayPoint& point : result.points) {
    row += fmt::format("{:>7.1f}%", 100 * cell(point));
  }
  return row + "\n";
}

std::string ReplayText(const AccessSequence& sequence, const ReplayResult& result) {
  const auto share = [&](int64_t keys) {
    return 100 * static_cast<double>(keys) / static_cast<double>(sequence.num_keys());
  };
  std::string text = fmt::format(
      "{}: {} accesses to {} {}, {} passes\n"
      "a pass uses {} of them ({:.1f}%), the median; were all like it, LRU would hit nothing up to "
      "{} "
      "({:.1f}%)\n\n",
      sequence.model_name, result.accesses, sequence.num_keys(), UnitName(sequence),
      sequence.num_passes(), result.working_set.keys, share(result.working_set.keys),
      result.working_set.lru_hits_nothing, share(result.working_set.lru_hits_nothing));
  text +=
      HitRateRow("hit rate at", result, [](const ReplayPoint& point) { return point.capacity; });
  const size_t policies = result.points.front().policies.size();
  const auto name = [&](size_t i) {
    return CachePolicyName(result.points.front().policies[i].policy);
  };
  for (size_t i = 0; i < policies; ++i) {
    text += HitRateRow(name(i), result, [&](const ReplayPoint& point) {
      return Rate(result, point.policies[i].hits);
    });
  }
  text += HitRateRow("Belady's bound", result,
                     [&](const ReplayPoint& point) { return Rate(result, point.belady_hits); });
  text += "\nof the way from LRU to the bound\n";
  for (size_t i = 0; i < policies; ++i) {
    if (result.points.front().policies[i].policy == CachePolicyKind::kLru) continue;
    text += HitRateRow(name(i), result,
                       [&](const ReplayPoint& point) { return point.policies[i].gap_closed; });
  }
  return text;
}

}  // namespace

void AddReplayOptions(CLI::App& command, ReplayArguments& arguments) {
  command
      .add_option("--trace", arguments.trace,
                  "instead of a MODEL: what a cache would hit of these recorded accesses (of "
                  "profile --trace, or a .route.csv of experts)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      .add_option_function<std::string>(
          "--policy",
          [&arguments](const std::string& text) { arguments.policies = ParsePolicies(text); },
          "with --trace: " + CachePolicyNames(", ") + " (default all)")
      ->option_text("NAME,...");
  command
      .add_option_function<std::string>(
          "--capacity",
          [&arguments](const std::string& text) { arguments.capacities = ParseCapacities(text); },
          "with --trace: shares of all neurons or experts that the cache holds (default "
          "5%,10%,20%,30%,40%,50%,60%)")
      ->option_text("P%,...");
  command.add_option("--plot", arguments.plot, "with --trace: picture to write (SVG)")
      ->option_text("FILE")
      ->check(NotEmpty());
}

void CheckReplayUsage(const CLI::App& command, const ReplayArguments& arguments) {
  const std::array<std::string_view, 5> replays = {"--trace", "--policy", "--capacity", "--plot",
                                                   "--json"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_name() == "--json") continue;
    const std::string name = option->get_name();
    const bool is_replays = std::find(replays.begin(), replays.end(), name) != replays.end();
    if (arguments.trace.empty() && is_replays) throw UsageError(name + ": there is no --trace");
    if (!arguments.trace.empty() && !is_replays) {
      throw UsageError(name + " has no effect: --trace runs no model");
    }
  }
  if (arguments.trace.empty() && command.count("MODEL") == 0) {
    throw UsageError("MODEL is required (or --trace)");
  }
}

int Replay(const ReplayArguments& arguments, bool json) {
  CheckFiles({{"--trace", arguments.trace}}, {{"--plot", arguments.plot}});
  if (!arguments.plot.empty()) CheckWritable(arguments.plot);  // before the work
  CatchInterrupts(true);
  AccessSequence sequence;
  ReplayResult result;
  {
    ProgressLine progress("reading", ProgressUnit::kShare);
    sequence =
        ReadAccessSequence(OpenFileReader(arguments.trace),
                           [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  }
  {
    ProgressLine progress("replaying", ProgressUnit::kShare);
    ReplayOptions options{.policies = arguments.policies, .capacities = arguments.capacities};
    if (options.policies.empty()) {
      options.policies.assign(AllCachePolicies().begin(), AllCachePolicies().end());
    }
    if (options.capacities.empty()) {
      options.capacities.assign(kDefaultCapacities.begin(), kDefaultCapacities.end());
    }
    options.progress = [&](int64_t done, int64_t total) {
      progress.Update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    };
    options.cancel = &InterruptFlag();
    result = ReplayCaches(sequence, options);
  }
  if (!arguments.plot.empty()) WriteFileAtomically(arguments.plot, PlotReplay(sequence, result));
  WriteOutput(json ? DumpJson(ReplayJson(arguments.trace, sequence, result))
                   : ReplayText(sequence, result));
  return kExitDone;
}

}  // namespace hearth::cli
