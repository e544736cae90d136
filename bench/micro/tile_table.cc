#include "bench/micro/tile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ops/tiles/tile_probe.h"

namespace hearth::micro {
namespace {

using Json = nlohmann::ordered_json;

// The type that doctor measures, and three that unpack or scale otherwise.
constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0};
constexpr int64_t kTokens[] = {1, 8, 24, 96, 256};
constexpr int kRounds = 20;
constexpr double kSliceSeconds = 0.003;
constexpr double kMicroseconds = 1e6;

std::string NameOfGeometry(const TileGeometry& geometry) {
  const auto plural = [](int64_t count) { return count == 1 ? "" : "s"; };
  return fmt::format("{} token{}, {} tile{}, {}", geometry.panel_tokens,
                     plural(geometry.panel_tokens), geometry.tiles, plural(geometry.tiles),
                     geometry.unpacks ? "unpacked" : "packed");
}

// QuietSeconds of all geometries, in microseconds.
std::vector<double> Times(TileProbe& probe, const std::vector<TileGeometry>& all, int64_t tokens) {
  std::vector<std::vector<double>> seconds(all.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      seconds[i].push_back(probe.SecondsOf(tokens, all[i], kSliceSeconds));
    }
  }
  std::vector<double> times;
  for (const std::vector<double>& of_one : seconds) {
    times.push_back(kMicroseconds * QuietSeconds(of_one));
  }
  return times;
}

Json Row(const char* isa, DType dtype, int64_t tokens, TileProbe& probe) {
  const std::vector<TileGeometry> all = probe.Geometries(tokens);
  const std::vector<double> times = Times(probe, all, tokens);
  const auto best =
      static_cast<size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  const auto solved =
      static_cast<size_t>(std::find(all.begin(), all.end(), probe.Solved(tokens)) - all.begin());
  Json geometries = Json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    geometries.push_back({{"panel_tokens", all[i].panel_tokens},
                          {"tiles", all[i].tiles},
                          {"unpacks", all[i].unpacks},
                          {"microseconds", times[i]}});
  }
  fmt::print("| {} | {} | {} | {} | {:.2f} | {} | {:.2f} | {:.3f} | {:.2f} |\n", isa,
             hearth::NameOf(dtype), tokens, NameOfGeometry(all[solved]), times[solved],
             NameOfGeometry(all[best]), times[best], times[solved] / times[best],
             *std::max_element(times.begin(), times.end()) / times[best]);
  std::fflush(stdout);
  return {{"isa", isa},
          {"type", hearth::NameOf(dtype)},
          {"tokens", tokens},
          {"solver", NameOfGeometry(all[solved])},
          {"solver_microseconds", times[solved]},
          {"fastest", NameOfGeometry(all[best])},
          {"fastest_microseconds", times[best]},
          {"solver_over_fastest", times[solved] / times[best]},
          {"geometries", geometries}};
}

}  // namespace

void RunTileTable(const std::vector<const kernels::KernelTable*>& tables, const Memory& memory,
                  int threads, const std::string& json_path) {
  fmt::print(
      "| instruction set | type | tokens | solver | us | fastest | us | solver / fastest | slowest "
      "/ fastest |\n|---|---|--:|---|--:|---|--:|--:|--:|\n");
  Json rows = Json::array();
  for (const kernels::KernelTable* table : tables) {
    if (table->tile_unit.registers == 0) continue;  // one geometry
    Compute compute(table->isa, threads);
    for (const DType dtype : kTypes) {
      TileProbe probe(compute, memory.bytes(), dtype);
      for (const int64_t tokens : kTokens) rows.push_back(Row(table->isa, dtype, tokens, probe));
    }
  }
  if (json_path.empty()) return;
  std::ofstream file(json_path);
  file << Json{{"threads", threads}, {"rounds", kRounds}, {"rows", rows}}.dump(1) << '\n';
  if (!file.flush()) throw Error(ErrorCode::kIo, json_path, "cannot be written");
}

}  // namespace hearth::micro
