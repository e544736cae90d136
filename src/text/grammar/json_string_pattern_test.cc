// Patterns and formats: what they write is JSON that a regular expression of the standard library
// takes too.
#include "text/grammar/json_string_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "base/error.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/test_json_walk.h"

namespace hearth {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Grammar> PatternGrammar(const std::string& name, const std::string& value) {
  const nlohmann::json schema = {{"type", "string"}, {name, value}};
  return JsonSchemaGrammar(schema.dump());
}

bool TakesString(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  return AcceptsJson(grammar, nlohmann::json(text).dump());
}

struct PatternCase {
  const char* pattern;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

const std::vector<PatternCase>& PatternCases() {
  static const std::vector<PatternCase> cases = {
      {"^[a-z]+$", {"a", "abc"}, {"", "A", "a1", "a b"}},
      {"b", {"b", "abc", "bb", "a\nb"}, {"", "a", "B"}},
      {"^a", {"a", "ab"}, {"ba"}},
      {"a$", {"a", "ba"}, {"ab"}},
      {"^(foo|ba[rz])$", {"foo", "bar", "baz"}, {"ba", "foobar", ""}},
      {"^a|b$", {"a", "ax", "xb", "b"}, {"xa", "bx"}},
      {"^\\d{3}-\\d{4}$", {"123-4567"}, {"123-456", "1234567", "12a-4567"}},
      {"^[A-Z]{2,3}?$", {"AB", "ABC"}, {"A", "ABCD"}},
      {"^\\w{1,9}@\\w{1,9}\\.(com|org)$",
       {"a_1@b.com", "x@y.org"},
       {"a@b.net", "@b.com", "a@bxcom"}},
      {"^[^a-c]*$", {"", "xyz", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"}, {"a", "xbx"}},
      {"^[\\s\\S]{1,2}$", {"a", "a\n", "\xC3\xA9\x62"}, {"", "abc"}},
      {"^.{2}$", {"ab", "\xC3\xA9\xC3\xA9"}, {"a", "abc"}},
      {"^\"\\\\\\/\\t$", {"\"\\/\t"}, {"\"", "\\"}},
      {"^[\xC3\xA0-\xC3\xBF\xE4\xB8\x80-\xE9\xBF\xBF]+$",
       {"\xC3\xA9", "\xE4\xB8\xAD"},
       {"e", "\xC3\x97x"}},
      {"^\\x41\\u00e9$", {"A\xC3\xA9"}, {"A"}},
      {"^(?:a(?<name>b|c)?){2}$", {"aa", "abac", "aba"}, {"a", "abc"}},
      {"^$", {""}, {"a"}},
      {"^(a|)b$", {"b", "ab"}, {"a"}},
      {"^[-a]+[a-]$", {"-a", "a-", "--"}, {"-", "b-"}},
      {"^[\\]\\\\]$", {"]", "\\"}, {"[", "a"}},
  };
  return cases;
}

TEST(JsonStringPattern, TakesWhatMatchesAndNothingElse) {
  for (const PatternCase& c : PatternCases()) {
    const auto grammar = PatternGrammar("pattern", c.pattern);
    for (const char* text : c.valid) EXPECT_TRUE(TakesString(grammar, text)) << c.pattern << text;
    for (const char* text : c.invalid) {
      EXPECT_FALSE(TakesString(grammar, text)) << c.pattern << text;
    }
  }
}

TEST(JsonStringPattern, RandomWalksMatch) {
  std::mt19937 random(1);
  for (const PatternCase& c : PatternCases()) {
    const std::string pattern = c.pattern;
    // Where anything may come first a random walk does not find the way to what must follow.
    if (pattern.find("^") != 0 || pattern == "^a|b$") continue;
    // std::regex knows neither named groups nor characters of several bytes.
    const bool is_known =
        pattern.find("(?<") == std::string::npos &&
        std::all_of(pattern.begin(), pattern.end(), [](char b) { return b >= 0; }) &&
        pattern.find("\\u") == std::string::npos;
    const auto grammar = PatternGrammar("pattern", pattern);
    for (int i = 0; i < 12; ++i) {
      const std::string text = RandomJson(grammar, random);
      const auto json = nlohmann::json::parse(text, nullptr, false);
      ASSERT_TRUE(json.is_string()) << pattern << "\n" << text;
      const auto value = json.get<std::string>();
      const bool is_ascii = std::all_of(value.begin(), value.end(), [](char b) { return b >= 0; });
      if (!is_known || !is_ascii) continue;
      EXPECT_TRUE(std::regex_search(value, std::regex(pattern))) << pattern << "\n" << text;
    }
  }
}

TEST(JsonStringPattern, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"(?=a)", "conditions on what surrounds"},
      {"(?<!a)b", "conditions on what surrounds"},
      {"(a)\\1", "the escape '\\1'"},
      {"\\bword", "the escape '\\b'"},
      {"\\p{L}", "the escape '\\p'"},
      {"(^a)", "'^' or '$' inside"},
      {"a^b", "'^' or '$' inside"},
      {"(a*)*", "what may be empty"},
      {"(|a)+", "what may be empty"},
      {"a{2000}", "more than 1000 repetitions"},
      {"a{3,2}", "wrong way round"},
      {"[b-a]", "wrong way round"},
      {"[a-\\d]", "between classes"},
      {"[]", "no character"},
      {"[a", "ends too soon"},
      {"(a", "without its ')'"},
      {"a)", "without its '('"},
      {"*a", "nothing to repeat"},
      {"a**", "repetition of a repetition"},
      {"a{x}", "without a number"},
      {"\\", "ends too soon"},
      {"\\xg0", "hexadecimal"},
      {"\\ud800", "halves of characters"},
  };
  for (const auto& [pattern, words] : cases) {
    try {
      PatternGrammar("pattern", pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'pattern'")) << pattern;
      EXPECT_THAT(error.what(), HasSubstr(words)) << pattern;
    }
  }
  EXPECT_THROW(PatternGrammar("pattern", std::string(100'000, '(')), Error);
  EXPECT_THROW(PatternGrammar("pattern", std::string(9'000, '(')), Error);
  std::string large = "a";
  for (int i = 0; i < 4; ++i) large = "(" + large + "|" + large + "){1000}";
  EXPECT_NO_THROW(PatternGrammar("pattern", large)) << "repetitions share what they repeat";
}

TEST(JsonStringFormat, TakesPlainOnes) {
  const PatternCase cases[] = {
      {"date", {"2024-02-28", "1999-12-31"}, {"2024-02-30", "2024-13-01", "24-01-01", "2024-1-1"}},
      {"time", {"23:59:59Z", "00:00:00.5+02:00"}, {"24:00:00Z", "12:00", "12:00:60Z"}},
      {"date-time", {"2024-05-06T07:08:09Z"}, {"2024-05-06", "2024-05-06 07:08:09Z"}},
      {"duration", {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"}, {"P", "PT", "1D", "P1H", "P1DT"}},
      {"email",
       {"a@b.com", "first.last+tag@mail-1.example.org"},
       {"a", "a@b", "@b.com", "a b@c.de"}},
      {"hostname", {"example.com", "a-b", "localhost"}, {"", "-a", "a..b"}},
      {"ipv4", {"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
      {"ipv6", {"2001:db8:0:0:0:0:0:1"}, {"::g", "1:2:3"}},
      {"uri",
       {"https://example.org", "http://a.b:80/c/d?e=f#g", "mailto:a@b.de", "urn:isbn:123"},
       {"", "example.org", "/a", "http://", "https://a b"}},
      {"uri-reference", {"/a/b", "https://a.b"}, {"", "a b"}},
      {"json-pointer", {"", "/a/0"}, {"a"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426614174000"},
       {"123e4567", "123e4567e89b12d3a456426614174000"}},
  };
  std::mt19937 random(2);
  for (const PatternCase& c : cases) {
    const auto grammar = PatternGrammar("format", c.pattern);
    for (const char* text : c.valid) EXPECT_TRUE(TakesString(grammar, text)) << text;
    for (const char* text : c.invalid) EXPECT_FALSE(TakesString(grammar, text)) << text;
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(nlohmann::json::parse(RandomJson(grammar, random)).is_string());
    }
  }
  EXPECT_TRUE(TakesString(PatternGrammar("format", "int32"), "any text")) << "an annotation";
}

}  // namespace
}  // namespace hearth
