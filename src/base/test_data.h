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

// Writes `source` to `target` with the first `from` in it as `to`, which is as long.
inline void CopyReplacing(const std::string& source, const std::string& target,
                          const std::string& from, const std::string& to) {
  std::string bytes = ReadWholeFile(source);
  const size_t place = bytes.find(from);
  ASSERT_NE(place, std::string::npos) << from << " is not in " << source;
  ASSERT_EQ(from.size(), to.size());
  std::ofstream(target, std::ios::binary) << bytes.replace(place, to.size(), to);
}

// The model of this repository, as a program that knows nothing of hearth.ffn_activation would have
// converted it: without the key, which is dReLU's.
inline void WriteStoriesWithoutActivation(const std::string& target) {
  CopyReplacing(SourcePath("models/hearth-stories-5m.gguf"), target, "hearth.ffn_activation",
                "hearth.ffn_actixxxxxx");
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
