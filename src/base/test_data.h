// Where tests find data: the repository (HEARTH_SOURCE), and the shared folder beside it
// (HEARTH_SHARED). For tests only; ctest sets both.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace hearth {

inline std::string SourcePath(const std::string& relative) {
  const char* source = std::getenv("HEARTH_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/" + relative;
}

inline std::string SharedPath(const std::string& relative) {
  const char* shared = std::getenv("HEARTH_SHARED");
  return std::string(shared != nullptr ? shared : "../shared") + "/" + relative;
}

inline std::string ReadWholeFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace hearth

// At the top of a test: without the shared data it fails in CI and skips, with a notice, elsewhere.
#define HEARTH_NEED_SHARED(relative)                                                      \
  do {                                                                                    \
    if (!std::filesystem::exists(::hearth::SharedPath(relative))) {                       \
      if (std::getenv("CI") != nullptr) FAIL() << relative << " is missing in CI";        \
      GTEST_SKIP() << ::hearth::SharedPath(relative) << " is missing: set HEARTH_SHARED"; \
    }                                                                                     \
  } while (false)
