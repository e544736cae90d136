// What is written under a grammar of calls is read as calls that fit.
#include "text/tools/tool_call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/test_vocabularies.h"
#include "text/tools/test_tool_calls.h"

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

// Of a call of "add", up to the value of "a": until the name is written, and the rest.
std::pair<std::string, std::string> HeadOfCall(const ToolSyntax& syntax) {
  using Form = ToolSyntax::Form;
  const std::string name_end(syntax.name_end);
  if (syntax.form == Form::kPython) return {"[add(", "a="};
  if (syntax.form == Form::kNamed) return {"add" + name_end, "{\"a\": "};
  if (syntax.form == Form::kTagged) {
    return {"\n" + std::string(syntax.name_begin) + "add" + name_end,
            std::string(syntax.key_begin) + "a" + std::string(syntax.key_end) +
                std::string(syntax.value_begin) + (syntax.values_on_lines ? "\n" : "")};
  }
  const std::string open = syntax.form == Form::kList ? "[" : "";
  return {open + "{\"" + std::string(syntax.name_key) + "\": \"add\", \"" +
              std::string(syntax.arguments_key) + "\": ",
          "{\"a\": "};
}

FoundInAnswer FindIn(const ToolSyntax& syntax, const std::string& answer) {
  return FindCalls(syntax, MakeCallable(Functions(), syntax), answer);
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
  for (const ToolSyntax* syntax : AllToolSyntaxes()) {
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
  for (const ToolSyntax* syntax : AllToolSyntaxes()) {
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
    EXPECT_FALSE(matcher.AdvanceBytes("rm")) << "no function of that name";
    const auto [name, argument] = HeadOfCall(*syntax);
    EXPECT_TRUE(matcher.AdvanceBytes(name)) << syntax->name << name;
    EXPECT_FALSE(matcher.AdvanceBytes("{\"b\""));
    EXPECT_FALSE(matcher.AdvanceBytes("b="));
    EXPECT_FALSE(
        matcher.AdvanceBytes(std::string(syntax->key_begin) + "b" + std::string(syntax->key_end)));
    EXPECT_FALSE(matcher.AdvanceBytes(argument + "0")) << syntax->name;
    EXPECT_TRUE(matcher.AdvanceBytes(argument + "12")) << syntax->name;
    for (int i = 0; i < 30; ++i) {
      const Walk walk = RandomAnswer(grammar, *syntax, random);
      if (walk.ended) ExpectCallsFit(FindIn(*syntax, walk.text), walk.text);
    }
  }
}

// A token that runs over the end of the marker must fit after it.
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

// Arguments one by one: texts without quotes, what may be left out, and what is read of them.
TEST(ToolCallGrammar, ArgumentsWithoutQuotes) {
  const ToolFunction file = {
      .name = "write",
      .parameters = R"({"type": "object", "$defs": {"Mode": {"enum": ["append", "replace"]}},
        "properties": {"path": {"type": "string", "description": "where"},
                       "mode": {"$ref": "#/$defs/Mode"},
                       "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                       "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                       "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["path", "size"]})"};
  const auto vocabulary = std::make_shared<const SortedVocabulary>(ToolTokenizer());
  const auto read = [&](const char* source, const std::string& text) -> std::string {
    const ToolSyntax& syntax = *DetectToolSyntax(source);
    GrammarMatcher matcher(
        ToolCallGrammar(syntax, {file}, {.must_call = true, .takes_many = false}, ToolTokenizer()),
        vocabulary);
    if (!matcher.AdvanceBytes(text) || !matcher.IsFinished()) return "refused";
    const FoundInAnswer found = FindCalls(syntax, MakeCallable({file}, syntax), text);
    EXPECT_EQ(found.text, "");
    EXPECT_EQ(found.calls.size(), 1u);
    EXPECT_TRUE(Json::accept(found.calls.at(0).arguments)) << found.calls.at(0).arguments;
    return found.calls.at(0).arguments;
  };
  constexpr char kQwen[] = "<tool_call> <function= <parameter= </parameter>";
  const auto qwen = [&](const std::string& arguments) {
    return read(kQwen, "<tool_call>\n<function=write>\n" + arguments + "</function>\n</tool_call>");
  };
  const std::string size = "<parameter=size>\n7\n</parameter>\n";
  const std::string path = "<parameter=path>\n/a b\n</parameter>\n";
  EXPECT_EQ(qwen(path + size), R"({"path": "/a b", "size": 7})");
  EXPECT_EQ(qwen("<parameter=path>\n1 < 2 </par>\n\n\"x\"\n</parameter>\n" + size),
            R"({"path": "1 < 2 </par>\n\n\"x\"", "size": 7})");
  EXPECT_EQ(qwen("<parameter=path>\n12\n</parameter>\n" + size), R"({"path": "12", "size": 7})");
  EXPECT_EQ(qwen(path + "<parameter=mode>\nappend\n</parameter>\n<parameter=size>\nnull\n"
                        "</parameter>\n<parameter=note>\nnull\n</parameter>\n<parameter=tags>\n"
                        "[\"x\"]\n</parameter>\n"),
            R"({"path": "/a b", "mode": "append", "size": null, "note": null, "tags": ["x"]})");
  EXPECT_EQ(qwen(path + size + "<parameter=note>\n12\n</parameter>\n"),
            R"({"path": "/a b", "size": 7, "note": "12"})");
  EXPECT_EQ(qwen(path), "refused") << "size is required";
  EXPECT_EQ(qwen(size + path), "refused") << "in their order";
  EXPECT_EQ(qwen(path + "<parameter=mode>\nother\n</parameter>\n" + size), "refused");
  EXPECT_EQ(qwen(path + "<parameter=size>\nx\n</parameter>\n"), "refused");
  EXPECT_EQ(read("<tool_call> <arg_key> <arg_value>",
                 "<tool_call>write<arg_key>path</arg_key><arg_value>/a\n</arg_value>"
                 "<arg_key>size</arg_key><arg_value>7</arg_value></tool_call>"),
            R"({"path": "/a\n", "size": 7})");
  constexpr char kPython[] = "<|tool_call_start|><|tool_call_end|>";
  EXPECT_EQ(read(kPython, "<|tool_call_start|>[write(path=\"a, b)\", size=7)]<|tool_call_end|>"),
            R"x({"path": "a, b)", "size": 7})x");
  EXPECT_EQ(read(kPython, "<|tool_call_start|>[write(path=\"a\")]<|tool_call_end|>"), "refused");
  EXPECT_EQ(read("[func_name1(", "[write(path=\"a\", size=null, tags=[\"x\", \"y\"])]"),
            R"({"path": "a", "size": null, "tags": ["x", "y"]})");
}

TEST(ToolCallGrammar, NamesWhatCannotBeKeptToWithoutQuotes) {
  const ToolSyntax& tagged = *DetectToolSyntax("<tool_call> <function= <parameter= </parameter>");
  const ToolSyntax& python = *DetectToolSyntax("[func_name1(");
  const auto refusal = [](const ToolSyntax& syntax, const std::string& properties) -> std::string {
    const ToolFunction function = {
        .name = "f",
        .description = "",
        .parameters = "{\"type\": \"object\", \"properties\": {" + properties + "}}",
        .strict = true};
    try {
      ToolCallGrammar(syntax, {function}, {.must_call = true}, ToolTokenizer());
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  for (const char* property :
       {R"("x": {"type": "string", "pattern": "a+"})", R"("x": {"type": "string", "maxLength": 3})",
        R"("x": {"enum": ["a", null]})", R"("x": {"type": ["string", "object"]})",
        R"("x": {"enum": ["</parameter>"]})"}) {
    EXPECT_THAT(refusal(tagged, property), HasSubstr("'x' without quotes")) << property;
    EXPECT_EQ(refusal(python, property), "taken");
  }
  EXPECT_THAT(refusal(tagged, R"("a>b": {"type": "integer"})"), HasSubstr("'a>b'"));
  EXPECT_THAT(refusal(python, R"("a-b": {"type": "integer"})"), HasSubstr("'a-b'"));
  EXPECT_EQ(refusal(tagged, R"("a-b": {"type": "integer"})"), "taken");
}

TEST(ToolCallGrammar, ArgumentsMayBeOneOfSeveralObjects) {
  std::vector<ToolFunction> functions = Functions();
  functions[0].parameters = R"({"anyOf": [
      {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
      {"allOf": [{"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
                 {"properties": {"c": {"type": "integer"}}}]},
      {"type": "null"}]})";
  const auto grammar =
      ToolCallGrammar(GenericToolSyntax(), functions, {.must_call = true}, ToolTokenizer());
  const auto takes = [&](const std::string& arguments) {
    GrammarMatcher matcher(grammar, std::make_shared<const SortedVocabulary>(ToolTokenizer()));
    return matcher.AdvanceBytes("<tool_call>{\"name\": \"add\", \"arguments\": " + arguments +
                                "}</tool_call>");
  };
  for (const char* text : {R"({"a": null})", R"({"b": true})", R"({"b": true, "c": 3})"}) {
    EXPECT_TRUE(takes(text)) << text;
  }
  for (const char* text : {"{}", "null", R"({"a": null, "b": true})", R"({"c": 3})"}) {
    EXPECT_FALSE(takes(text)) << text;
  }
}

TEST(ToolCallGrammar, NamesTheFunctionThatItRefuses) {
  std::vector<ToolFunction> functions = Functions(true);
  for (const auto& [schema, words] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "object", "properties": {"x": {"contains": {}}}})", "'contains'"},
           {R"({"type": "string"})", "it allows no object"},
           {"{", "not valid JSON"}}) {
    functions[0].parameters = schema;
    try {
      ToolCallGrammar(GenericToolSyntax(), functions, {.must_call = true}, ToolTokenizer());
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("function 'add'"));
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
    // Where nothing is promised its arguments are any object; those of others keep to their schema.
    std::vector<ToolFunction> lenient = Functions();
    std::swap(lenient[0].parameters, lenient[1].parameters);
    lenient[0].parameters = schema;
    const auto grammar =
        ToolCallGrammar(GenericToolSyntax(), lenient, {.must_call = true}, ToolTokenizer());
    const auto takes = [&](const std::string& name, const std::string& arguments) {
      GrammarMatcher matcher(grammar, std::make_shared<const SortedVocabulary>(ToolTokenizer()));
      return matcher.AdvanceBytes("<tool_call>{\"name\": \"" + name +
                                  "\", \"arguments\": " + arguments + "}</tool_call>");
    };
    EXPECT_TRUE(takes("add", R"({"x": [1]})"));
    EXPECT_FALSE(takes("add", "[]"));
    EXPECT_TRUE(takes("now", R"({"a": 5})"));
    EXPECT_FALSE(takes("now", R"({"a": 500})"));
  }
  functions[0].parameters = "{}";
  EXPECT_NO_THROW(
      ToolCallGrammar(GenericToolSyntax(), functions, {.must_call = true}, ToolTokenizer()));
}

}  // namespace
}  // namespace hearth
