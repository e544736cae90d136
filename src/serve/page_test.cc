// The files of the chat page, and who may have them.
#include "serve/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "serve/gate.h"

namespace hearth::serve {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

// Of the libraries that the page may load, compressed.
constexpr size_t kLibraryBytes = size_t{160} << 10;

TEST(PageTest, OnlyItsOwnFilesAreThere) {
  for (const char* path : {"/", "/page/main.js", "/page/page.css", "/page/lib/marked.js"}) {
    EXPECT_TRUE(IsPageFile(path)) << path;
    EXPECT_TRUE(PageFileAt(path)) << path;
  }
  for (const char* path : {"", "/page", "/page/", "/page/main.js.gz", "/page/../page/main.js",
                           "/page/index.html", "//page/main.js"}) {
    EXPECT_FALSE(IsPageFile(path)) << path;
    EXPECT_FALSE(PageFileAt(path)) << path;
  }
}

TEST(PageTest, ThePolicyAllowsNoScriptInsideOfThePage) {
  const Response page = PageFileAt("/").value();
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.headers,
              Contains(Pair("Content-Security-Policy",
                            AllOf(StartsWith("default-src 'none'; script-src 'self';"),
                                  Not(HasSubstr("unsafe"))))));
  EXPECT_THAT(page.headers, Not(Contains(Pair("Content-Encoding", "gzip"))));
}

TEST(PageTest, EveryFileThatThePageNamesIsThere) {
  const std::string page = PageFileAt("/").value().body;
  const std::regex address("(?:src|href)=\"(/[^\"]*)\"");
  int count = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), address), end; it != end; ++it, ++count) {
    EXPECT_TRUE(IsPageFile((*it)[1].str())) << (*it)[1];
  }
  EXPECT_GE(count, 3);
}

TEST(PageTest, LibrariesAreCompressedAndSmall) {
  size_t bytes = 0;
  for (const char* name : {"marked.js", "katex.js", "highlight.js", "licenses.txt"}) {
    const Response file = PageFileAt(std::string("/page/lib/") + name).value();
    EXPECT_THAT(file.body, StartsWith("\x1f\x8b")) << name;
    EXPECT_THAT(file.headers, Contains(Pair("Content-Encoding", "gzip")));
    bytes += file.body.size();
  }
  EXPECT_GT(bytes, kLibraryBytes / 4);
  EXPECT_LT(bytes, kLibraryBytes);
}

TEST(PageTest, APageThatAsksForAKeyNeedsNone) {
  const Gate gate({.keys = {"secret"}});
  for (const char* path : {"/", "/page/main.js", "/page/lib/katex.js"}) {
    EXPECT_NO_THROW(gate.CheckHead({.method = "GET", .target = path})) << path;
    EXPECT_NO_THROW(gate.CheckHead({.method = "HEAD", .target = path})) << path;
    try {
      gate.CheckHead({.method = "POST", .target = path, .authorization = "Bearer secret"});
      FAIL() << path;
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status(), Status::kMethodNotAllowed);
      EXPECT_EQ(error.allowed(), "GET, HEAD");
    }
  }
  try {
    gate.CheckHead({.method = "GET", .target = "/page/none.js"});
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), Status::kUnauthorized);
  }
}

}  // namespace
}  // namespace hearth::serve
