// Where tests find data: the repository, and the shared folder beside it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
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

}  // namespace hearth

// Skips the test, with a notice, where the shared data is missing; in CI that is a failure.
#define HEARTH_NEED_SHARED(relative)                                 \
  if (!std::filesystem::exists(::hearth::SharedPath(relative))) {    \
    if (std::getenv("CI") != nullptr) {                              \
      FAIL() << "missing in CI: " << ::hearth::SharedPath(relative); \
    }                                                                \
    GTEST_SKIP() << "needs " << ::hearth::SharedPath(relative);      \
  }                                                                  \
  static_assert(true)
