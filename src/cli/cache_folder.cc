#include "cli/cache_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace hearth::cli {

std::string CacheFolder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path folder;
  // The specification tells programs to ignore paths that are not absolute.
  if (cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    throw Error(ErrorCode::kNotFound, "the folder for what Hearth learned",
                "neither XDG_CACHE_HOME nor HOME says where it is");
  }
  folder /= "hearth";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, folder.string(), "cannot be made: " + error.message());
  return folder.string();
}

}  // namespace hearth::cli
