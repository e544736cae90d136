#include "cli/measure/bench_report.h"

#include <fmt/format.h>

#include <optional>

#include "base/memory_info.h"
#include "base/units.h"
#include "cli/screen/report.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;
using Share = std::optional<double>;

// Measured speeds as shares of what the machine did in the same minutes. Nothing where a model
// makes no int8 products, or where the machine's speed is not known.
Share Int8PeakShare(const PrefillResult& prefill, const BenchResult& result) {
  const double macs = Total(prefill.work).int8_macs / static_cast<double>(prefill.tokens);
  if (macs == 0) return std::nullopt;
  return macs * prefill.tok_s.median / result.int8_macs_per_s;
}

Share BandwidthShare(const BenchResult& result) {
  if (!result.read_bytes_per_s) return std::nullopt;
  return Total(result.decode.work).bytes * result.decode.tok_s.median / *result.read_bytes_per_s;
}

Share FloorShare(const BenchResult& result) {
  if (!result.read_bytes_per_s) return std::nullopt;
  return FloorSeconds(Total(result.decode.work), *result.read_bytes_per_s, result.int8_macs_per_s) *
         result.decode.tok_s.median;
}

Json OrNull(const Share& share) { return share ? Json(*share) : Json(nullptr); }

Json SpreadJson(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

Json PrefillJson(const BenchResult& result) {
  Json out = Json::array();
  for (const PrefillResult& prefill : result.prefill) {
    out.push_back({{"tokens", prefill.tokens},
                   {"tok_s", SpreadJson(prefill.tok_s)},
                   {"int8_peak_share", OrNull(Int8PeakShare(prefill, result))}});
  }
  return out;
}

Json DecodeJson(const BenchResult& result) {
  const DecodeResult& decode = result.decode;
  return {{"tokens", decode.tokens},
          {"context", decode.context},
          {"tok_s", SpreadJson(decode.tok_s)},
          {"bytes_per_token", static_cast<uint64_t>(Total(decode.work).bytes)},
          {"bandwidth_share", OrNull(BandwidthShare(result))},
          {"floor_share", OrNull(FloorShare(result))},
          {"latency_ms",
           {{"mean", Mean(decode.latencies_ms)},
            {"p50", Percentile(decode.latencies_ms, 0.50)},
            {"p90", Percentile(decode.latencies_ms, 0.90)},
            {"p99", Percentile(decode.latencies_ms, 0.99)}}}};
}

Json ParallelJson(Engine& engine, const BenchResult& result) {
  Json out = Json::array();
  for (const ParallelResult& parallel : result.parallel) {
    out.push_back({{"sequences", parallel.sequences},
                   {"tokens", parallel.tokens},
                   {"context", parallel.context},
                   {"tok_s", SpreadJson(parallel.tok_s)},
                   {"speedup", parallel.tok_s.median / result.decode.tok_s.median},
                   {"io", IoJson(engine, parallel.stream, parallel.decoded, std::nullopt)}});
  }
  return out;
}

Share MissRateP99(const DecodeResult& decode) {
  if (decode.miss_rates.empty()) return std::nullopt;
  return Percentile(decode.miss_rates, 0.99);
}

// result.quality is there.
Json BenchQualityJson(const BenchResult& result) {
  Json quality = {{"tokens", result.quality_tokens}};
  quality.update(QualityJson(*result.quality));
  return quality;
}

Json MachineJson(const BenchResult& result, const ProbeMemory& memory) {
  Share gb_s;
  if (result.read_bytes_per_s) gb_s = *result.read_bytes_per_s / 1e9;
  Share storage;
  if (result.storage_bytes_per_s) storage = *result.storage_bytes_per_s / 1e9;
  return {{"read_bandwidth_gb_s", OrNull(gb_s)},
          {"read_bandwidth_missing", gb_s ? Json(nullptr) : Json(memory.missing())},
          {"int8_gmac_s", result.int8_macs_per_s / 1e9},
          {"storage_read_gb_s", OrNull(storage)}};
}

// ", 61% of the int8 peak", or nothing.
std::string ShareText(const Share& share, const char* of) {
  return share ? fmt::format(", {:.0f}% of {}", 100 * *share, of) : "";
}

std::string SpeedLine(const std::string& name, const Spread& tok_s, const std::string& note) {
  return fmt::format("{:<14}{:>10.2f}{:>10.2f}{:>10.2f}{}\n", name, tok_s.median, tok_s.min,
                     tok_s.max, note.empty() ? "" : "  " + note.substr(2));
}

}  // namespace

Json BenchJson(Engine& engine, const ModelOptions& options, const ProbeMemory& memory,
               const BenchResult& result) {
  const std::string& name = engine.model().spec().name;
  return {{"model", options.model},
          {"shape", name.empty() ? Json(nullptr) : Json(name)},
          {"threads", engine.compute().threads()},
          {"isa", engine.compute().isa()},
          {"mode", FfnModeName(engine.mode())},
          {"quality", result.quality ? BenchQualityJson(result) : Json(nullptr)},
          {"prefill", PrefillJson(result)},
          {"decode", DecodeJson(result)},
          {"parallel", ParallelJson(engine, result)},
          {"machine", MachineJson(result, memory)},
          {"memory", MemoryJson(engine, options)},
          {"io", IoJson(engine, result.decode.stream, std::ssize(result.decode.latencies_ms),
                        MissRateP99(result.decode))}};
}

std::string BenchText(Engine& engine, const ModelOptions& options, const ProbeMemory& memory,
                      const BenchResult& result) {
  const DecodeResult& decode = result.decode;
  std::string out = EngineText(engine, options) + "\n";
  out += fmt::format("{:<14}{:>10}{:>10}{:>10}\n", "tok/s", "median", "min", "max");
  for (const PrefillResult& prefill : result.prefill) {
    out += SpeedLine(fmt::format("prefill {}", prefill.tokens), prefill.tok_s,
                     ShareText(Int8PeakShare(prefill, result), "the int8 peak"));
  }
  out += SpeedLine(fmt::format("decode {}", decode.tokens), decode.tok_s,
                   ShareText(BandwidthShare(result), "the read bandwidth") +
                       ShareText(FloorShare(result), "the possible"));
  for (const ParallelResult& parallel : result.parallel) {
    out += SpeedLine(
        fmt::format("{} together", parallel.sequences), parallel.tok_s,
        fmt::format(
            ", {:.2f} times one{}", parallel.tok_s.median / decode.tok_s.median,
            engine.is_streamed() ? "; " + IoText(engine, parallel.stream, parallel.decoded) : ""));
  }
  out += fmt::format(
      "\nms per token  mean {:.2f}, p50 {:.2f}, p90 {:.2f}, p99 {:.2f}; after {} tokens\n",
      Mean(decode.latencies_ms), Percentile(decode.latencies_ms, 0.50),
      Percentile(decode.latencies_ms, 0.90), Percentile(decode.latencies_ms, 0.99), decode.context);
  out += fmt::format("per token     {:.3f} GB read, {:.2f} G int8 multiply-adds\n",
                     Total(decode.work).bytes / 1e9, Total(decode.work).int8_macs / 1e9);
  const std::string read = result.read_bytes_per_s
                               ? fmt::format("reads {:.1f} GB/s", *result.read_bytes_per_s / 1e9)
                               : "read bandwidth not known (" + memory.missing() + ")";
  out += fmt::format("machine       {}, {:.0f} G int8 multiply-adds/s\n", read,
                     result.int8_macs_per_s / 1e9);
  if (result.quality) {
    out += fmt::format("neurons       {}, over {} tokens\n", QualityText(*result.quality),
                       result.quality_tokens);
  }
  if (engine.is_streamed()) {
    out += fmt::format(
        "storage       {}, p99 {:.1f}% not; {:.2f} GB/s where nothing else goes on\n",
        IoText(engine, decode.stream, std::ssize(decode.latencies_ms)),
        100 * MissRateP99(decode).value_or(0), result.storage_bytes_per_s.value_or(0) / 1e9);
  }
  return out + fmt::format("memory        {} at the most\n", FormatSize(PeakResidentBytes()));
}

}  // namespace hearth::cli
