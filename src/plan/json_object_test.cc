#include "plan/json_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "plan/json_reader.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const json& Document() {
  static const json document = json::parse(R"({
    "count": 7, "most": 18446744073709551615, "share": 0.5, "is_on": true, "name": "hearth",
    "none": null, "list": [{"n": 1}, {"n": 2}], "inner": {"deep": {"n": 3}}})");
  return document;
}

JsonObject Reader(const json& document = Document()) {
  return JsonObject(document, "file.json", ErrorCode::kCorrupt);
}

TEST(JsonObjectTest, ReadsValues) {
  JsonObject object = Reader();
  EXPECT_EQ(object.Int("count"), 7);
  EXPECT_EQ(object.Count("most", 0, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(object.Number("share", 0, 1), 0.5);
  EXPECT_EQ(object.NumberOr("share", 7), 0.5);
  EXPECT_EQ(object.NumberOr("nothing", 7), 7);
  EXPECT_TRUE(object.Bool("is_on"));
  EXPECT_EQ(object.Text("name"), "hearth");
  EXPECT_EQ(object.OneOf("name", {"stove", "hearth"}), "hearth");
  EXPECT_TRUE(object.IsNull("none"));
  EXPECT_FALSE(object.Has("nothing"));
  int64_t sum = 0;
  object.ForEach("list", 2, [&](JsonObject& entry) { sum += entry.Int("n"); });
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(object.Object("inner").Object("deep").Int("n"), 3);
  EXPECT_NO_THROW(object.Finish());
}

TEST(JsonObjectTest, RefusesWithThePlace) {
  const std::pair<std::function<void(JsonObject&)>, const char*> kBad[] = {
      {[](JsonObject& o) { o.Int("nothing"); }, "file.json: nothing is missing"},
      {[](JsonObject& o) { o.Int("share"); }, "share: expected an integer"},
      {[](JsonObject& o) { o.Int("most"); }, "2^63"},
      {[](JsonObject& o) { o.Int("count", 8, 9); }, "expected an integer from 8 to 9"},
      {[](JsonObject& o) { o.Count("none", 0, 9); }, "none"},
      {[](JsonObject& o) { o.Number("name"); }, "a number"},
      {[](JsonObject& o) { o.Number("share", 1); }, "a number from 1 on"},
      {[](JsonObject& o) { o.Number("count", 0, 1); }, "a number from 0 to 1"},
      {[](JsonObject& o) { o.Bool("count"); }, "true or false"},
      {[](JsonObject& o) { o.Text("count"); }, "a string"},
      {[](JsonObject& o) { o.Text("name", 3); }, "at most 3 bytes"},
      {[](JsonObject& o) {
         o.OneOf("name", {"a", "b"});
       },
       "one of a, b"},
      {[](JsonObject& o) { o.List("list", 1); }, "a list of at most 1"},
      {[](JsonObject& o) { o.Object("list"); }, "list: expected an object, found an array"},
      {[](JsonObject& o) { o.Object("inner").Object("deep").Int("m"); }, "inner.deep.m is missing"},
      {[](JsonObject& o) { o.ForEach("list", 9, [](JsonObject& e) { e.Int("n", 0, 1); }); },
       "list[1].n"},
      {[](JsonObject& o) { o.ForEach("list", 9, [](JsonObject&) {}); }, "unknown key 'list[0].n'"},
      {[](JsonObject& o) { o.Finish(); }, "unknown key"},
  };
  for (const auto& [read, says] : kBad) {
    JsonObject object = Reader();
    try {
      read(object);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(JsonObjectTest, TakesObjectsOnly) {
  for (const json& other : {json(7), json(nullptr), json::array({1}), json("text")}) {
    EXPECT_THROW(Reader(other), Error) << other;
  }
}

TEST(JsonObjectTest, KeysAreThereOnce) {
  const auto parse = [](const std::string& text) {
    return ReadJsonDocument(text, "file.json", ErrorCode::kCorrupt);
  };
  // The same in another object is another key.
  EXPECT_FALSE(parse(R"({"a": {"b": 1}, "b": [{"b": 1}, {"b": 2}]})").is_discarded());
  EXPECT_TRUE(parse("{").is_discarded());
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text : {std::string(R"({"a": 1, "a": 1})"),
                                  std::string(R"({"l": [0, {"a": {"c": 1}, "b": 2, "a": 3}]})")}) {
    EXPECT_THAT([&] { parse(text); },
                ThrowsMessage<Error>(HasSubstr("file.json: key 'a' is there twice")));
  }
  EXPECT_THAT([&] { parse(deep); }, ThrowsMessage<Error>(HasSubstr("nested too deeply")));
}

TEST(JsonReaderTest, ReadsWhatTheLibraryReads) {
  for (const std::string text :
       {R"({"a": [1, -2, 3.5, 18446744073709551615, "é\n", null, true, {}], "b": {"c": []}})", "7",
        R"("text")", "[[[]]]", "null"}) {
    EXPECT_EQ(ReadJsonDocument(text, "file", ErrorCode::kCorrupt), json::parse(text)) << text;
  }
  for (const std::string text :
       {"", "{", "[1,]", "{} {}", "\"\xff\"", "1e999", "{'a': 1}", "nul"}) {
    EXPECT_TRUE(ReadJsonDocument(text, "file", ErrorCode::kCorrupt).is_discarded()) << text;
  }
}

TEST(JsonReaderTest, KeepsToLimits) {
  const auto read = [](const std::string& text) {
    return ReadJson<nlohmann::ordered_json>(
        text, {.most_levels = 2, .most_values = 7, .most_members = 3},
        [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "file", why); });
  };
  EXPECT_EQ(read(R"({"b": [1], "a": 2, "b": [3, 4]})").dump(), R"({"b":[3,4],"a":2})");
  EXPECT_THAT([&] { read("[[[]]]"); }, ThrowsMessage<Error>(HasSubstr("too deeply")));
  EXPECT_THAT([&] { read("[1,2,3,4,5,6,7]"); }, ThrowsMessage<Error>(HasSubstr("too many values")));
  EXPECT_THAT([&] { read(R"({"a":1,"b":1,"c":1,"d":1})"); },
              ThrowsMessage<Error>(HasSubstr("too many members")));
}

}  // namespace
}  // namespace hearth
