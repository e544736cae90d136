#include "ops/tiles/measured_tiles.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "plan/json_reader.h"
#include "plan/machine_hash.h"
#include "storage/text_file.h"

namespace hearth {
namespace {

constexpr uint64_t kMostProfileBytes = uint64_t{16} << 20;
constexpr size_t kMostTileEntries = 256;
constexpr int64_t kMostTokensOfTiles = 4096;
constexpr int64_t kMostTilesAtOnce = 64;
constexpr double kLeastSeconds = 1e-12;
constexpr double kMostSeconds = 1e6;

// A profile of another version may have other things by this name.
std::vector<MeasuredTiles> TilesOfFile(const std::string& file, const std::string& isa) {
  const std::string text =
      ReadText(file, {.most_bytes = kMostProfileBytes, .what = "a hardware profile"});
  const auto document = ReadJsonDocument(text, file, ErrorCode::kCorrupt);
  JsonObject fields(document, file, ErrorCode::kCorrupt);
  const std::string machine = MachineHash(CpuModelName(), isa, AvailableCpus(), TotalMemoryBytes());
  if (fields.Text("machine") != machine) return {};
  return ReadTiles(fields);
}

}  // namespace

std::string UsersHardwareFile() {
  // By the XDG Base Directory Specification a relative path counts as none.
  for (const auto& [name, below] : {std::pair("XDG_CACHE_HOME", "hearth/hardware.json"),
                                    std::pair("HOME", ".cache/hearth/hardware.json")}) {
    const char* const value = std::getenv(name);
    const std::filesystem::path folder = value == nullptr ? "" : value;
    if (folder.is_absolute()) return (folder / below).string();
  }
  return "";
}

std::vector<MeasuredTiles> ReadTiles(JsonObject& document) {
  std::vector<MeasuredTiles> all;
  document.ForEach("tiles", kMostTileEntries, [&](JsonObject& fields) {
    MeasuredTiles measured;
    TilesForTokens& tiles = measured.tiles;
    tiles.tokens = fields.Int("tokens", 1, kMostTokensOfTiles);
    tiles.geometry.panel_tokens = fields.Int("panel_tokens", 1, kMostTokensOfTiles);
    tiles.geometry.tiles = fields.Int("tiles", 1, kMostTilesAtOnce);
    tiles.geometry.unpacks = fields.Bool("unpacks");
    measured.seconds = fields.Number("seconds", kLeastSeconds, kMostSeconds);
    measured.solved_seconds = fields.Number("solved_seconds", kLeastSeconds, kMostSeconds);
    if (!all.empty() && tiles.tokens <= all.back().tiles.tokens) {
      fields.Fail("tokens", "ascending numbers", tiles.tokens);
    }
    all.push_back(measured);
  });
  return all;
}

bool UseMeasuredTiles(Compute& compute, const std::string& file) {
  std::error_code ignored;
  if (file.empty() || !std::filesystem::exists(file, ignored)) return false;
  try {
    std::vector<TilesForTokens> all;
    for (const MeasuredTiles& measured : TilesOfFile(file, compute.isa())) {
      all.push_back(measured.tiles);
    }
    if (all.empty()) return false;
    compute.UseTiles(all);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace hearth
