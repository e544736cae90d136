// Real chat templates and small ones, with what Jinja2 makes of them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "text/jinja/template.h"

namespace hearth::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string RenderedVector(const std::string& source, const Json& context) {
  std::string text;
  const Template parsed(source, "template");
  for (const ChatPiece& piece : parsed.Render(Context::FromJson(context.dump(), "context"))) {
    text += piece.text;
  }
  return text;
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

}  // namespace
}  // namespace hearth::jinja
