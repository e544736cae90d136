#include "cli/measure/op_times_report.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <vector>

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

// One op of one measure, per token.
struct OpRow {
  const char* name;
  double ms;
  double share;                    // of the token
  std::optional<double> floor_ms;  // nothing where the machine's bandwidth is not known
};

// Ops that took no time are not part of the model.
std::vector<OpRow> Rows(const OpSeconds& seconds, const WorkByOp& work, int64_t tokens,
                        const BenchResult& result) {
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const double to_ms = 1000 / static_cast<double>(tokens);
  std::vector<OpRow> rows;
  for (size_t op = 0; op < kNumPassOps; ++op) {
    if (seconds[op] == 0) continue;
    OpRow row{PassOpName(static_cast<PassOp>(op)), seconds[op] * to_ms, seconds[op] / all,
              std::nullopt};
    if (result.read_bytes_per_s) {
      row.floor_ms =
          to_ms * FloorSeconds(work[op], *result.read_bytes_per_s, result.int8_macs_per_s);
    }
    rows.push_back(row);
  }
  return rows;
}

// What a pass of several sequences reads depends on what their tokens have in common: no floor.
std::vector<OpRow> ParallelRows(const ParallelResult& parallel, const BenchResult& result) {
  return Rows(parallel.op_seconds, {}, parallel.sequences, result);
}

bool HasFloor(const OpRow& row) { return row.floor_ms && *row.floor_ms > 0; }

Json RowsJson(int64_t tokens, const std::vector<OpRow>& rows) {
  Json ops = Json::array();
  for (const OpRow& row : rows) {
    ops.push_back(
        {{"op", row.name},
         {"ms_per_token", row.ms},
         {"share", row.share},
         {"floor_ms_per_token", row.floor_ms ? Json(*row.floor_ms) : Json(nullptr)},
         {"time_over_floor", HasFloor(row) ? Json(row.ms / *row.floor_ms) : Json(nullptr)}});
  }
  return {{"tokens", tokens}, {"ops", ops}};
}

std::string RowText(const OpRow& row) {
  const std::string floor =
      HasFloor(row) ? fmt::format("{:>12.4f}{:>12.2f}", *row.floor_ms, row.ms / *row.floor_ms)
                    : fmt::format("{:>12}{:>12}", "-", "-");
  return fmt::format("{:<18}{:>12.4f}{:>8.1f}%{}\n", row.name, row.ms, 100 * row.share, floor);
}

std::string TableText(const std::string& title, const std::vector<OpRow>& rows) {
  std::string text = fmt::format("\n{:<18}{:>12}{:>9}{:>12}{:>12}\n", title, "ms/token", "share",
                                 "floor ms", "time/floor");
  OpRow sum{"all", 0, 1, std::nullopt};
  for (const OpRow& row : rows) {
    text += RowText(row);
    sum.ms += row.ms;
    if (row.floor_ms) sum.floor_ms = sum.floor_ms.value_or(0) + *row.floor_ms;
  }
  return text + RowText(sum);
}

}  // namespace

Json ProfileJson(const BenchResult& result) {
  Json prefill = Json::array();
  for (const PrefillResult& p : result.prefill) {
    prefill.push_back(RowsJson(p.tokens, Rows(p.op_seconds, p.work, p.tokens, result)));
  }
  const DecodeResult& decode = result.decode;
  Json parallel = Json::array();
  for (const ParallelResult& p : result.parallel) {
    parallel.push_back(RowsJson(p.sequences, ParallelRows(p, result)));
  }
  return {{"prefill", prefill},
          {"parallel", parallel},
          {"decode", RowsJson(decode.tokens, Rows(decode.op_seconds, decode.work, 1, result))}};
}

std::string ProfileText(const BenchResult& result) {
  const PrefillResult& prefill = result.prefill.back();
  std::string text = TableText(fmt::format("prefill {}", prefill.tokens),
                               Rows(prefill.op_seconds, prefill.work, prefill.tokens, result)) +
                     TableText(fmt::format("decode {}", result.decode.tokens),
                               Rows(result.decode.op_seconds, result.decode.work, 1, result));
  for (const ParallelResult& parallel : result.parallel) {
    text +=
        TableText(fmt::format("{} together", parallel.sequences), ParallelRows(parallel, result));
  }
  return text;
}

}  // namespace hearth::cli
