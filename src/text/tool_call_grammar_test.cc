// What is written under a grammar of calls is read as calls that fit.
#include "text/tool_call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "text/grammar_matcher.h"
#include "text/test_tool_calls.h"
#include "text/test_vocabularies.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// "call>", a line break and "{".
const std::string kAcross = "call>" + ByteLetter('\n') + "{";

// Of which the markers of the list syntax are control tokens.
const Tokenizer& ToolTokenizer() {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = SmallBpeVocabulary();
    builder.Add("[TOOL_CALLS]", TokenType::kControl)
        .Add("<tool_call>", TokenType::kUserDefined)
        .Add(kAcross)
        .Add("=x")
        .Add("\":", TokenType::kNormal);
    return Tokenizer::FromGguf(builder.Bpe());
  }();
  return *tokenizer;
}

std::vector<ToolFunction> Functions(bool strict = false) {
  return {{.name = "add",
           .description = "",
           .parameters = R"({"type": "object", "properties": {"a": {"type": "integer",
                             "minimum": 1, "maximum": 99}}, "required": ["a"]})",
           .strict = strict},
          {.name = "now", .description = "", .parameters = "", .strict = strict}};
}

const std::vector<const ToolSyntax*>& Syntaxes() {
  static const std::vector<const ToolSyntax*> all = {
      DetectToolSyntax("<tool_call> arguments"),
      DetectToolSyntax("<|start_header_id|> \"parameters\": "),
      DetectToolSyntax("[TOOL_CALLS]"),
      DetectToolSyntax("[TOOL_CALLS] [ARGS]"),
      DetectToolSyntax("<|START_ACTION|> tool_name"),
      DetectToolSyntax("<function= </function>"),
  };
  return all;
}

struct Walk {
  std::string text;  // as an answer shows it
  bool ended = false;
};

// An answer of random allowed tokens; after a while those that end things are preferred.
Walk RandomAnswer(const std::shared_ptr<const Grammar>& grammar, const ToolSyntax& syntax,
                  std::mt19937& random) {
  static const auto vocabulary = std::make_shared<const SortedVocabulary>(ToolTokenizer());
  GrammarMatcher matcher(grammar, vocabulary);
  const Tokenizer& tokenizer = ToolTokenizer();
  const std::vector<TokenId> visible = ToolMarkerTokens(syntax, tokenizer);
  Walk walk;
  for (int step = 0; step < 1500; ++step) {
    const TokenMask mask = matcher.AllowedTokens();
    std::vector<TokenId> allowed, closing;
    bool may_end = false;
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (!IsAllowed(mask, id)) continue;
      if (tokenizer.IsEndOfGeneration(id)) {
        may_end = true;
        continue;
      }
      allowed.push_back(id);
      const std::string_view bytes = tokenizer.TokenBytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
    }
    if (may_end && (step > 60 || random() % 8 == 0)) return {walk.text, true};
    if (allowed.empty()) return {walk.text, may_end};
    const auto& choice = step > 60 && !closing.empty() ? closing : allowed;
    const TokenId id = choice[random() % choice.size()];
    EXPECT_TRUE(matcher.Advance(id));
    const bool is_marker = std::count(visible.begin(), visible.end(), id) > 0;
    walk.text += is_marker ? tokenizer.VocabularyText(id) : tokenizer.TokenBytes(id);
  }
  return walk;
}

FoundInAnswer FindIn(const ToolSyntax& syntax, const std::string& answer) {
  return FindCalls(syntax, {"add", "now"}, answer);
}

void ExpectCallsFit(const FoundInAnswer& found, const std::string& answer) {
  for (const FoundCall& call : found.calls) {
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << answer;
    if (call.name == "now") {
      EXPECT_TRUE(arguments.empty()) << answer;
      continue;
    }
    ASSERT_EQ(arguments.size(), 1u) << answer;
    EXPECT_GE(arguments["a"].get<int>(), 1);
    EXPECT_LE(arguments["a"].get<int>(), 99);
  }
}

TEST(ToolCallGrammar, ForcedAnswersAreCallsThatFit) {
  std::mt19937 random(1);
  for (const ToolSyntax* syntax : Syntaxes()) {
    for (const bool many : {false, true}) {
      const auto grammar = ToolCallGrammar(
          *syntax, Functions(), {.must_call = true, .takes_many = many}, ToolTokenizer());
      size_t most = 0;
      for (int i = 0; i < 30; ++i) {
        const Walk walk = RandomAnswer(grammar, *syntax, random);
        ASSERT_TRUE(walk.ended) << syntax->name << walk.text;
        const FoundInAnswer read = FindIn(*syntax, walk.text);
        EXPECT_EQ(read.text, "") << syntax->name << ": " << walk.text;
        ASSERT_FALSE(read.calls.empty()) << syntax->name << ": " << walk.text;
        most = std::max(most, read.calls.size());
        ExpectCallsFit(read, walk.text);
      }
      EXPECT_EQ(most > 1, many && syntax->takes_many) << syntax->name;
    }
  }
}

TEST(ToolCallGrammar, FreeAnswersMayCallAndStrictCallsFit) {
  std::mt19937 random(2);
  for (const ToolSyntax* syntax : Syntaxes()) {
    const auto grammar = ToolCallGrammar(*syntax, Functions(true), {}, ToolTokenizer());
    const auto vocabulary = std::make_shared<const SortedVocabulary>(ToolTokenizer());
    const TokenId control = ToolTokenizer().FindToken(syntax->begin);
    const bool is_control = control >= 0 && ToolTokenizer().type(control) == TokenType::kControl;
    const std::string marker = is_control ? ControlTokenBytes(control) : std::string(syntax->begin);
    GrammarMatcher matcher(grammar, vocabulary);
    EXPECT_TRUE(matcher.AdvanceBytes("Words of <any [kind \xC3\xA9 {}"));
    EXPECT_TRUE(matcher.IsFinished());
    EXPECT_TRUE(matcher.Advance(ToolTokenizer().FindToken("<|im_start|>"))) << "of any kind";
    EXPECT_TRUE(matcher.AdvanceBytes(marker));
    EXPECT_FALSE(matcher.IsFinished()) << syntax->name;
    const std::string name_key = "\"" + std::string(syntax->name_key) + "\"";
    const std::string arguments_key = "\"" + std::string(syntax->arguments_key) + "\"";
    const bool is_named = syntax->form == ToolSyntax::Form::kNamed;
    const std::string open = syntax->form == ToolSyntax::Form::kList ? "[" : "";
    const std::string head = is_named
                                 ? "add" + std::string(syntax->name_end)
                                 : open + "{" + name_key + ": \"add\", " + arguments_key + ": ";
    EXPECT_FALSE(matcher.AdvanceBytes("rm")) << "no function of that name";
    EXPECT_TRUE(matcher.AdvanceBytes(head)) << syntax->name << head;
    EXPECT_FALSE(matcher.AdvanceBytes("{\"b\""));
    EXPECT_FALSE(matcher.AdvanceBytes("{\"a\": 0"));
    EXPECT_TRUE(matcher.AdvanceBytes("{\"a\": 12}")) << syntax->name;
    for (int i = 0; i < 30; ++i) {
      const Walk walk = RandomAnswer(grammar, *syntax, random);
      if (walk.ended) ExpectCallsFit(FindIn(*syntax, walk.text), walk.text);
    }
  }
}

// A token that runs over the end of the marker must fit behind it.
TEST(ToolCallGrammar, TokensAcrossTheMarkerAreJudged) {
  const ToolSyntax& syntax = GenericToolSyntax();
  const auto grammar = ToolCallGrammar(syntax, Functions(true), {}, ToolTokenizer());
  const auto vocabulary = std::make_shared<const SortedVocabulary>(ToolTokenizer());
  GrammarMatcher matcher(grammar, vocabulary);
  ASSERT_TRUE(matcher.AdvanceBytes("a <tool_"));
  const TokenId across = ToolTokenizer().FindToken(kAcross);
  ASSERT_GE(across, 0);
  EXPECT_TRUE(IsAllowed(matcher.AllowedTokens(), across)) << "a call goes on so";
  ASSERT_TRUE(matcher.Advance(across));
  EXPECT_FALSE(IsAllowed(matcher.AllowedTokens(), across));
  GrammarMatcher named(ToolCallGrammar(*DetectToolSyntax("<function= </function>"), Functions(true),
                                       {}, ToolTokenizer()),
                       vocabulary);
  ASSERT_TRUE(named.AdvanceBytes("<function"));
  const TokenId wrong = ToolTokenizer().FindToken("=x");
  EXPECT_FALSE(IsAllowed(named.AllowedTokens(), wrong)) << "no function begins so";
}

TEST(ToolCallGrammar, AnswersInTextMayKeepToASchema) {
  const ToolSyntax& syntax = GenericToolSyntax();
  const auto vocabulary = std::make_shared<const SortedVocabulary>(ToolTokenizer());
  const auto grammar =
      ToolCallGrammar(syntax, Functions(), {.answer_schema = R"({"enum": [5]})"}, ToolTokenizer());
  const auto takes = [&](const std::string& text) {
    GrammarMatcher matcher(grammar, vocabulary);
    return matcher.AdvanceBytes(text) && matcher.IsFinished();
  };
  EXPECT_TRUE(takes("5"));
  EXPECT_FALSE(takes("6"));
  EXPECT_FALSE(takes(""));
  EXPECT_TRUE(takes("<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"));
}

TEST(ToolCallGrammar, NamesTheFunctionThatItRefuses) {
  std::vector<ToolFunction> functions = Functions();
  for (const auto& [schema, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "object", "properties": {"x": {"not": {}}}})", "'not'"},
           {R"({"type": "string"})", "type 'object'"},
           {"{", "not valid JSON"}}) {
    functions[0].parameters = schema;
    try {
      ToolCallGrammar(GenericToolSyntax(), functions, {.must_call = true}, ToolTokenizer());
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("function 'add'"));
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
  functions[0].parameters = "{}";
  EXPECT_NO_THROW(
      ToolCallGrammar(GenericToolSyntax(), functions, {.must_call = true}, ToolTokenizer()));
}

}  // namespace
}  // namespace hearth
