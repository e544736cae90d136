// Real chat templates and small ones, with what Jinja2 makes of them.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "text/jinja/template.h"

namespace hearth::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string RenderedVector(const std::string& source, const Json& context,
                           const Limits& limits = {}) {
  std::string text;
  const Template parsed(source, "template");
  for (const ChatPiece& piece :
       parsed.Render(Context::FromJson(context.dump(), "context"), limits)) {
    text += piece.text;
  }
  return text;
}

// "2024-07-26T12:00:00" on this machine's clock.
std::chrono::system_clock::time_point LocalTime(const std::string& text) {
  std::tm local{};
  std::istringstream(text) >> std::get_time(&local, "%Y-%m-%dT%H:%M:%S");
  local.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&local));
}

TEST(TemplateVectorsShared, RealTemplates) {
  HEARTH_NEED_SHARED("data/templates/e2e.json");
  const Json cases = Json::parse(ReadWholeFile(SharedPath("data/templates/e2e.json")));
  ASSERT_GE(cases.size(), 35u);
  for (const Json& c : cases) {
    EXPECT_EQ(RenderedVector(c["chat_template"], c["data"]), c["target"]) << c["name"];
  }
}

TEST(TemplateVectorsShared, Snippets) {
  HEARTH_NEED_SHARED("data/templates/snippets.json");
  const Json cases = Json::parse(ReadWholeFile(SharedPath("data/templates/snippets.json")));
  size_t rendered = 0;
  size_t refused = 0;
  for (const Json& c : cases) {
    if (c.contains("jinja2_output")) {
      EXPECT_EQ(RenderedVector(c["template"], c["context"]), c["jinja2_output"]) << c["name"];
      ++rendered;
    } else if (c.contains("jinja2_error")) {
      EXPECT_THROW(RenderedVector(c["template"], c["context"]), Error) << c["name"];
      ++refused;
    }
  }
  EXPECT_GE(rendered, 140u);
  EXPECT_GE(refused, 8u);
}

// Real templates of 2024 to 2026, with tools, calls, reasoning and parts, as transformers renders
// them.
TEST(TemplateVectorsShared, RealTemplatesOf2026) {
  HEARTH_NEED_SHARED("data/templates/goldens-2026.json");
  const Json all = Json::parse(ReadWholeFile(SharedPath("data/templates/goldens-2026.json")));
  size_t rendered = 0;
  size_t refused = 0;
  for (const Json& c : all["goldens"]) {
    const std::string name = c["template"];
    const std::string context_name = c["context"];
    SCOPED_TRACE(name + ", " + context_name);
    const std::string source = all["templates"][name];
    const Json& context = all["contexts"][context_name];
    Limits limits;
    if (c.contains("now")) limits.now = LocalTime(c["now"]);
    if (c.contains("error")) {
      EXPECT_THROW(RenderedVector(source, context, limits), Error);
      ++refused;
      continue;
    }
    try {
      EXPECT_EQ(RenderedVector(source, context, limits), c["expected"]);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    ++rendered;
  }
  EXPECT_EQ(rendered, 466u);
  EXPECT_EQ(refused, 62u);
}

}  // namespace
}  // namespace hearth::jinja
