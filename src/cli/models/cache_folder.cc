#include "cli/models/cache_folder.h"

#include <cstdlib>
#include <filesystem>

#include "ops/tiles/measured_tiles.h"

namespace hearth::cli {
namespace {

std::filesystem::path FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string CacheFolder() {
  // By the XDG Base Directory Specification a relative path counts as none.
  const std::filesystem::path cache = FromEnvironment("XDG_CACHE_HOME");
  if (cache.is_absolute()) return (cache / "hearth").string();
  const std::filesystem::path home = FromEnvironment("HOME");
  return home.is_absolute() ? (home / ".cache" / "hearth").string() : "";
}

std::string ModelsFolder() {
  const std::filesystem::path models = FromEnvironment("HEARTH_MODELS");
  if (!models.empty()) return std::filesystem::absolute(models).lexically_normal().string();
  const std::filesystem::path data = FromEnvironment("XDG_DATA_HOME");
  if (data.is_absolute()) return (data / "hearth" / "models").string();
  const std::filesystem::path home = FromEnvironment("HOME");
  return home.is_absolute() ? (home / ".local" / "share" / "hearth" / "models").string() : "";
}

std::string SavedHardwarePath() { return UsersHardwareFile(); }

std::string StateFolder() {
  const std::filesystem::path state = FromEnvironment("XDG_STATE_HOME");
  if (state.is_absolute()) return (state / "hearth").string();
  const std::filesystem::path home = FromEnvironment("HOME");
  return home.is_absolute() ? (home / ".local" / "state" / "hearth").string() : "";
}

}  // namespace hearth::cli
