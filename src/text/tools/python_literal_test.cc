#include "text/tools/python_literal.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace hearth {
namespace {

using nlohmann::json;

TEST(PythonLiteral, BecomesJson) {
  const auto is = [](const std::string& text, const json& expected) {
    const auto found = PythonToJson(text);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(json::parse(*found), expected) << text;
  };
  is("1", 1);
  is(" -7 ", -7);
  is("+1_000", 1000);
  is(".5", 0.5);
  is("-1.", -1.0);
  is("1.e3", 1000.0);
  is("True", true);
  is("[True, false, None, null]", {true, false, nullptr, nullptr});
  is("'a \"b\" \\'c\\''", "a \"b\" 'c'");
  is("\"tab\\t, \\x41\\u00e9\\U0001F600 \\q\"", "tab\t, A\xC3\xA9\xF0\x9F\x98\x80 \\q");
  is("'\\ud83d\\ude00'", "\xF0\x9F\x98\x80");
  is("(1, (2,), [])", {1, {2}, json::array()});
  is("{'a': {1: 'x',}, \"b\": []}", {{"a", {{"1", "x"}}}, {"b", json::array()}});
  is("{}", json::object());
  is("'\xFF'", "\xEF\xBF\xBD");
  is("{\"json\": [1, 2.50, \"\\/\"]}", {{"json", {1, 2.5, "/"}}});
}

TEST(PythonLiteral, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", " ", "x", "1 2", "'a", "'a\\", "[1", "[1 2]", "{1}", "{1: }", "f(1)", "1 + 2", "--1",
        "'\\x4'", "'\\ud83d'", "'\\udc00'", "'\\U00110000'", "1e999x", "[,]"}) {
    EXPECT_FALSE(PythonToJson(text)) << text;
  }
  EXPECT_FALSE(PythonToJson(std::string(100'000, '[') + "'"));
}

// Whatever it is given, what comes back is JSON; and of JSON the same value.
TEST(PythonLiteral, RandomTexts) {
  std::mt19937 random(1);
  const std::vector<std::string> words = {"[", "]",  "{",    "}",     "(",    ")",      ",", ":",
                                          "'", "\"", "\\",   "1",     "-",    ".",      "e", "True",
                                          " ", "x",  "None", "\\u12", "\xC3", "\xA9\n", "0", "_"};
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t count = random() % 9; count > 0; --count) text += words[random() % words.size()];
    const auto found = PythonToJson(text);
    if (found) {
      EXPECT_TRUE(json::accept(*found)) << text;
    }
    if (json::accept(text)) {
      EXPECT_EQ(json::parse(found.value()), json::parse(text)) << text;
    }
  }
}

}  // namespace
}  // namespace hearth
