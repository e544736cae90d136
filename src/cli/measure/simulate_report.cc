#include "cli/measure/simulate_report.h"

#include <fmt/format.h>

#include "base/units.h"

namespace hearth::cli {
namespace {

double InMs(double seconds) { return 1000 * seconds; }

nlohmann::ordered_json PointJson(const SimulatedPoint& point) {
  const SimResult& result = point.result;
  const bool mapped = point.pipeline == SimPipeline::kMmap;
  return {
      {"pipeline", SimPipelineName(point.pipeline)},
      {"memory_bytes", point.memory_bytes},
      {"cache_bytes", result.cache_bytes},
      {"cache_share", point.cache_share},
      {"decode_tok_s", result.tok_s()},
      {"latency_ms",
       {{"mean", InMs(result.mean_seconds())},
        {"p50", InMs(result.QuantileSeconds(0.5))},
        {"p90", InMs(result.QuantileSeconds(0.9))},
        {"p99", InMs(result.QuantileSeconds(0.99))}}},
      {"dense_ms", InMs(result.dense_seconds)},
      {"compute_ms", InMs(result.compute_seconds)},
      {"wait_ms", InMs(result.wait_seconds)},
      {"listed_per_token", mapped ? nlohmann::ordered_json(nullptr)
                                  : nlohmann::ordered_json(result.listed_per_token())},
      {"miss_rate", {{"mean", result.mean_miss_rate()}, {"p99", result.QuantileMissRate(0.99)}}},
      {"bytes_read_per_token", result.bytes_per_token},
      {"reads_per_token", result.reads_per_token}};
}

}  // namespace

std::string SimulationText(const SimInputs& inputs, const std::vector<SimulatedPoint>& points) {
  std::string text = fmt::format(
      "{} on {}: {} cores compute at {:.1f} G multiply-adds per second, {} reads\n"
      "{} in memory beside neurons, {} of neurons; strategies of {}, accesses {}\n\n",
      inputs.model.name, inputs.device.name, inputs.device.num_compute_cores(),
      inputs.device.compute_macs_per_s() / 1e9, inputs.device.flash.name,
      FormatSize(inputs.model.resident_bytes()), FormatSize(inputs.model.slots_bytes()),
      SimSystemName(inputs.system), inputs.trace ? "recorded" : "synthetic");
  text += fmt::format("{:<10}{:>11}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}\n", "pipeline",
                      "memory", "FFNs", "tok/s", "mean ms", "p50", "p90", "p99", "wait ms", "miss",
                      "p99");
  for (const SimulatedPoint& point : points) {
    const SimResult& result = point.result;
    text += fmt::format(
        "{:<10}{:>11}{:>7.1f}%{:>9.2f}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}{:>7.1f}%{:>7.1f}%\n",
        SimPipelineName(point.pipeline), FormatSize(point.memory_bytes), 100 * point.cache_share,
        result.tok_s(), InMs(result.mean_seconds()), InMs(result.QuantileSeconds(0.5)),
        InMs(result.QuantileSeconds(0.9)), InMs(result.QuantileSeconds(0.99)),
        InMs(result.wait_seconds), 100 * result.mean_miss_rate(),
        100 * result.QuantileMissRate(0.99));
  }
  return text;
}

nlohmann::ordered_json SimulationJson(const SimInputs& inputs,
                                      const std::vector<SimulatedPoint>& points) {
  nlohmann::ordered_json document = {{"device", inputs.device.name},
                                     {"model", inputs.model.name},
                                     {"system", SimSystemName(inputs.system)},
                                     {"accesses", inputs.trace     ? "recorded"
                                                  : inputs.profile ? "profile"
                                                                   : "synthetic"},
                                     {"resident_bytes", inputs.model.resident_bytes()},
                                     {"neurons_bytes", inputs.model.slots_bytes()},
                                     {"points", nlohmann::ordered_json::array()}};
  for (const SimulatedPoint& point : points) document["points"].push_back(PointJson(point));
  return document;
}

}  // namespace hearth::cli
