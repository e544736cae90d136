// Data shared between checkouts (HEARTH_SHARED), for tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace hearth {

// Where the file or folder would lie.
inline std::filesystem::path SharedPath(const std::string& relative) {
  const char* shared = std::getenv("HEARTH_SHARED");
  return std::filesystem::path(shared == nullptr ? "../shared" : shared) / relative;
}

inline std::string ReadWholeFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace hearth

// At the top of a test: without the data it fails in CI and skips elsewhere.
#define HEARTH_NEED_SHARED(relative)                                                    \
  do {                                                                                  \
    if (!std::filesystem::exists(hearth::SharedPath(relative))) {                       \
      if (std::getenv("CI") != nullptr) FAIL() << relative << " is missing in CI";      \
      GTEST_SKIP() << hearth::SharedPath(relative) << " is missing: set HEARTH_SHARED"; \
    }                                                                                   \
  } while (false)
