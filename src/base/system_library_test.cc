#include "base/system_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

using testing::HasSubstr;

TEST(SystemLibraryTest, TakesTheFirstThatLoads) {
  constexpr const char* kNames[] = {"libhearth-has-none.so.7", "libm.so.6"};
  const SystemLibrary library(kNames, "arithmetic", "libc6");
  double (*cube_root)(double) = nullptr;
  library.Find("cbrt", cube_root);
  EXPECT_DOUBLE_EQ(cube_root(27), 3);
}

TEST(SystemLibraryTest, SaysWhatToInstall) {
  constexpr const char* kNone[] = {"libhearth-has-none.so.7"};
  constexpr const char* kMath[] = {"libm.so.6"};
  const auto message = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  EXPECT_THAT(message([&] { SystemLibrary(kNone, "planning", "libz3-4"); }),
              HasSubstr("planning needs the package libz3-4"));
  EXPECT_THAT(message([&] {
                void (*function)() = nullptr;
                SystemLibrary(kMath, "planning", "libz3-4").Find("no_such_function", function);
              }),
              HasSubstr("no_such_function"));
}

}  // namespace
}  // namespace hearth
