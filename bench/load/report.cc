#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/units.h"

namespace hearth::load {
namespace {

using nlohmann::ordered_json;

struct PerClient {
  double least = 0, mean = 0, most = 0;
};

// Tokens per second.
PerClient SpeedsOf(const Run& run) {
  PerClient speeds;
  if (run.clients.empty() || run.counted_seconds() <= 0) return speeds;
  const auto less = [](const ClientResult& a, const ClientResult& b) {
    return a.tokens < b.tokens;
  };
  const auto [least, most] = std::minmax_element(run.clients.begin(), run.clients.end(), less);
  const auto per_second = [&](int64_t tokens) {
    return static_cast<double>(tokens) / run.counted_seconds();
  };
  speeds.least = per_second(least->tokens);
  speeds.most = per_second(most->tokens);
  speeds.mean = per_second(Total(run).tokens) / static_cast<double>(run.clients.size());
  return speeds;
}

ordered_json SamplesJson(const Samples& samples) {
  ordered_json histogram = ordered_json::array();
  const auto counts = samples.Histogram();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    ordered_json up_to;  // null
    if (i + 1 < counts.size()) up_to = 1e3 * Samples::UpperBound(i);
    histogram.push_back({{"up_to", up_to}, {"count", counts[i]}});
  }
  return {{"count", samples.count()},
          {"mean", 1e3 * samples.mean()},
          {"p50", 1e3 * samples.Quantile(0.5)},
          {"p90", 1e3 * samples.Quantile(0.9)},
          {"p99", 1e3 * samples.Quantile(0.99)},
          {"max", 1e3 * samples.max()},
          {"histogram", std::move(histogram)}};
}

// What a counter grew by while things were counted; nothing where it was not seen twice.
std::optional<double> GrowthOf(const Run& run, const std::string& series) {
  const auto found = run.sightings.series.find(series);
  if (found == run.sightings.series.end()) return std::nullopt;
  const Trend trend = TrendOf(found->second, run.warm_up_seconds);
  if (trend.points < 2) return std::nullopt;
  return trend.last - trend.first;
}

ordered_json Ratio(std::optional<double> of, std::optional<double> by) {
  if (!of || !by || *by <= 0) return nullptr;
  return *of / *by;
}

// By the server's own counters, between the first and the last look after the warm-up.
ordered_json ServerJson(const Run& run) {
  const auto tokens = GrowthOf(run, "generated_tokens");
  if (!tokens) return nullptr;
  const auto pinned = GrowthOf(run, "neurons_pinned");
  const auto cached = GrowthOf(run, "neurons_cached");
  const auto read = GrowthOf(run, "neurons_read");
  std::optional<double> found, asked;
  if (pinned && cached && read) {
    found = *pinned + *cached;
    asked = *found + *read;
  }
  return {{"generated_tokens", *tokens},
          {"tokens_per_pass", Ratio(tokens, GrowthOf(run, "decode_passes"))},
          {"reads_per_token", Ratio(GrowthOf(run, "decode_reads"), tokens)},
          {"bytes_read_per_token", Ratio(GrowthOf(run, "decode_read_bytes"), tokens)},
          {"found_in_memory", Ratio(found, asked)}};
}

bool IsLevel(const std::string& series) {
  static const std::vector<std::string> kCounters = {
      "generated_tokens", "decode_passes",  "decode_reads", "decode_read_bytes",
      "neurons_pinned",   "neurons_cached", "neurons_read"};
  return std::find(kCounters.begin(), kCounters.end(), series) == kCounters.end();
}

ordered_json TrendsJson(const Run& run) {
  ordered_json trends = ordered_json::array();
  for (const auto& [name, points] : run.sightings.series) {
    if (!IsLevel(name)) continue;
    const Trend trend = TrendOf(points, run.warm_up_seconds);
    trends.push_back({{"name", name},
                      {"points", trend.points},
                      {"first", trend.first},
                      {"last", trend.last},
                      {"least", trend.least},
                      {"most", trend.most},
                      {"slope_per_hour", trend.slope_per_second * 3600},
                      {"change", trend.change()}});
  }
  return trends;
}

std::string Ms(double seconds) { return fmt::format("{:.1f}", seconds * 1e3); }

std::string TimesText(const Run& run) {
  const ClientResult total = Total(run);
  std::string text = fmt::format("{:<22}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "times in ms",
                                 "count", "mean", "P50", "P90", "P99", "max");
  const std::pair<const char*, const Samples*> rows[] = {{"to first token", &total.first_token},
                                                         {"between tokens", &total.between_tokens},
                                                         {"of a request", &total.request}};
  for (const auto& [name, samples] : rows) {
    text += fmt::format("{:<22}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}\n", name, samples->count(),
                        Ms(samples->mean()), Ms(samples->Quantile(0.5)), Ms(samples->Quantile(0.9)),
                        Ms(samples->Quantile(0.99)), Ms(samples->max()));
  }
  return text;
}

std::string ServerText(const Run& run) {
  const ordered_json server = ServerJson(run);
  if (server.is_null()) return "";
  const auto number = [&](const char* name, const char* format) {
    return server[name].is_null() ? std::string("-")
                                  : fmt::format(fmt::runtime(format), server[name].get<double>());
  };
  return fmt::format(
      "server: {} tokens per pass, {} reads and {} bytes read per token, {} of what "
      "was asked for found in memory\n",
      number("tokens_per_pass", "{:.2f}"), number("reads_per_token", "{:.1f}"),
      number("bytes_read_per_token", "{:.0f}"), number("found_in_memory", "{:.1%}"));
}

std::string TrendsText(const Run& run) {
  const ordered_json trends = TrendsJson(run);
  if (trends.empty()) return "";
  std::string text = fmt::format("\n{:<26}{:>8}{:>16}{:>16}{:>16}{:>18}\n", "over time", "points",
                                 "least", "most", "last", "slope per hour");
  for (const ordered_json& trend : trends) {
    text += fmt::format("{:<26}{:>8}{:>16.0f}{:>16.0f}{:>16.0f}{:>+18.0f}\n",
                        trend["name"].get<std::string>(), trend["points"].get<size_t>(),
                        trend["least"].get<double>(), trend["most"].get<double>(),
                        trend["last"].get<double>(), trend["slope_per_hour"].get<double>());
  }
  return text;
}

}  // namespace

ClientResult Total(const Run& run) {
  ClientResult total;
  for (const ClientResult& client : run.clients) {
    total.completed += client.completed;
    total.refused += client.refused;
    total.refused_wait_seconds += client.refused_wait_seconds;
    for (const auto& [kind, count] : client.errors) total.errors[kind] += count;
    total.tokens += client.tokens;
    total.prompt_tokens += client.prompt_tokens;
    total.cached_tokens += client.cached_tokens;
    total.first_token.AddAll(client.first_token);
    total.between_tokens.AddAll(client.between_tokens);
    total.request.AddAll(client.request);
  }
  return total;
}

ordered_json RunJson(const Run& run) {
  const ClientResult total = Total(run);
  const PerClient speeds = SpeedsOf(run);
  const WorkloadOptions& asked = run.workload;
  const auto range = [](const Range& r) { return ordered_json::array({r.least, r.most}); };
  return {{"url", run.url},
          {"clients", run.clients.size()},
          {"seconds", run.seconds},
          {"warm_up_seconds", run.warm_up_seconds},
          {"workload",
           {{"kind", asked.is_chat ? "chat" : "completion"},
            {"tokens", range(asked.tokens)},
            {"prompt_words", range(asked.prompt_words)},
            {"shared_prefix_words", asked.shared_prefix_words},
            {"requests_per_connection", run.requests_per_connection},
            {"seed", asked.seed}}},
          {"requests",
           {{"completed", total.completed},
            {"unfinished", run.unfinished},
            {"refused", total.refused},
            {"refused_wait_seconds", total.refused_wait_seconds},
            {"errors", total.errors}}},
          {"tokens",
           {{"generated", total.tokens},
            {"per_second", speeds.mean * static_cast<double>(run.clients.size())},
            {"prompt", total.prompt_tokens},
            {"cached_prompt", total.cached_tokens},
            {"of_a_client_per_second",
             {{"least", speeds.least}, {"mean", speeds.mean}, {"most", speeds.most}}}}},
          {"first_token_ms", SamplesJson(total.first_token)},
          {"between_tokens_ms", SamplesJson(total.between_tokens)},
          {"request_ms", SamplesJson(total.request)},
          {"server", ServerJson(run)},
          {"trends", TrendsJson(run)},
          {"watch_errors", run.sightings.errors}};
}

std::string RunText(const Run& run) {
  const ClientResult total = Total(run);
  const PerClient speeds = SpeedsOf(run);
  std::string text = fmt::format(
      "{} clients for {:.0f} s, of which the first {:.0f} s do not count\n\n"
      "{} requests, {} tokens: {:.1f} tokens per second; of a client {:.2f} to {:.2f}\n"
      "{} prompt tokens, of which {} were known\n\n{}\n",
      run.clients.size(), run.seconds, run.warm_up_seconds, total.completed, total.tokens,
      speeds.mean * static_cast<double>(run.clients.size()), speeds.least, speeds.most,
      total.prompt_tokens, total.cached_tokens, TimesText(run));
  if (total.refused > 0) {
    text += fmt::format("refused with 429: {} times, waited {:.0f} s as told\n", total.refused,
                        total.refused_wait_seconds);
  }
  if (run.unfinished > 0) text += fmt::format("unfinished at the end: {}\n", run.unfinished);
  for (const auto& [kind, count] : total.errors) {
    text += fmt::format("error: {} times {}\n", count, kind);
  }
  for (const auto& [kind, count] : run.sightings.errors) {
    text += fmt::format("watch: {} times {}\n", count, kind);
  }
  return text + ServerText(run) + TrendsText(run);
}

}  // namespace hearth::load
