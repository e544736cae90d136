#include "text/tools/tool_parameters.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(ToolParameters, KindsAreWhatTheSchemaSays) {
  const ToolParameters parameters = ReadToolParameters(R"({"type": "object",
    "$defs": {"Color": {"enum": ["red", "green"]}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"},
                   "share": {"type": "number"}, "color": {"$ref": "#/$defs/Color"},
                   "perhaps": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                   "one": {"const": true}, "any": {}, "loop": {"$ref": "#/$defs/Loop"},
                   "lost": {"$ref": "#/nowhere"}, "odd": {"type": "colour"}, "list": {"items": {}}}})");
  EXPECT_EQ(parameters.all.size(), 11u);
  EXPECT_EQ(parameters.all[0].name, "text");
  EXPECT_EQ(parameters.KindsOf("text"), kStringKind);
  EXPECT_EQ(parameters.KindsOf("count"), kIntegerKind);
  EXPECT_EQ(parameters.KindsOf("share"), kIntegerKind | kFractionKind);
  EXPECT_EQ(parameters.KindsOf("color"), kStringKind);
  EXPECT_EQ(parameters.KindsOf("perhaps"), kStringKind | kNullKind);
  EXPECT_EQ(parameters.KindsOf("one"), kBooleanKind);
  EXPECT_EQ(parameters.KindsOf("list"), kArrayKind);
  for (const char* name : {"any", "loop", "lost", "odd", "unknown"}) {
    EXPECT_EQ(parameters.KindsOf(name), kAllKinds) << name;
  }
  for (const char* schema : {"", "{", "[]", "7", R"({"properties": []})"}) {
    EXPECT_TRUE(ReadToolParameters(schema).all.empty()) << schema;
  }
}

// References that fan out are given up, not followed.
TEST(ToolParameters, HostileSchemasTakeNoTime) {
  std::string schema = R"({"properties": {"x": {"$ref": "#/$defs/0"}}, "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    schema += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": {\"anyOf\": [";
    for (int j = 0; j < 40; ++j) {
      schema +=
          std::string(j > 0 ? ", " : "") + "{\"$ref\": \"#/$defs/" + std::to_string(i + 1) + "\"}";
    }
    schema += "]}";
  }
  EXPECT_EQ(ReadToolParameters(schema + "}}").KindsOf("x"), kAllKinds);
}

TEST(ToolParameters, BareTextsAreReadAsTheSchemaAllows) {
  EXPECT_EQ(JsonOfBareText("12", kStringKind), "\"12\"");
  EXPECT_EQ(JsonOfBareText("12", kIntegerKind), "12");
  EXPECT_EQ(JsonOfBareText(" 12\n", kAllKinds), "12");
  EXPECT_EQ(JsonOfBareText("12", kStringKind | kNullKind), "\"12\"");
  EXPECT_EQ(JsonOfBareText("null", kStringKind | kNullKind), "null");
  EXPECT_EQ(JsonOfBareText("None", kNullKind), "null");
  EXPECT_EQ(JsonOfBareText("1.5", kIntegerKind), "1.5") << "it fits nothing: as it was meant";
  EXPECT_EQ(JsonOfBareText("twelve", kIntegerKind), "\"twelve\"");
  EXPECT_EQ(JsonOfBareText("\"a\"", kAllKinds), "\"\\\"a\\\"\"");
  EXPECT_EQ(JsonOfBareText("{\"a\": [1, 2]}", kAllKinds), "{\"a\": [1, 2]}");
  EXPECT_EQ(JsonOfBareText("", kStringKind), "\"\"");
  EXPECT_EQ(JsonOfBareText("", kIntegerKind), "\"\"");
  EXPECT_EQ(JsonOfBareText("a\xFF", kStringKind), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(JsonOfPython("'a'"), "\"a\"");
  EXPECT_EQ(JsonOfPython(" x + 1 "), "\"x + 1\"");
}

}  // namespace
}  // namespace hearth
