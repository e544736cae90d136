// Calls are found in answers, however they come in pieces.
#include "text/tools/tool_call_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/tools/test_tool_calls.h"

namespace hearth {
namespace {

constexpr char kLlama[] = "<|start_header_id|> \"parameters\": ";
constexpr char kMistral[] = "[TOOL_CALLS]";
constexpr char kMistralNamed[] = "[TOOL_CALLS] [ARGS]";
constexpr char kHermes[] = "<tool_call> arguments";
constexpr char kCommand[] = "<|START_ACTION|> tool_name";
constexpr char kFunctionTag[] = "<function= </function>";

constexpr char kTags[] = "<tool_call> <function= <parameter= </parameter>";
constexpr char kArgTags[] = "<tool_call> <arg_key> <arg_value>";
constexpr char kPythonList[] = "<|tool_call_start|><|tool_call_end|>";
constexpr char kPythonic[] = "[func_name1(params)]";

const std::vector<std::string> kFunctions = {"get_weather", "add"};

struct ReaderCase {
  const char* source;  // of a template that teaches the syntax
  const char* answer;
  const char* text;
  std::vector<FoundCall> calls;
};

const std::vector<ReaderCase>& ReaderCases() {
  static const std::vector<ReaderCase> cases = {
      {kHermes, "Hello there. ", "Hello there. ", {}},
      {kHermes, "", "", {}},
      {kHermes, " \n", " \n", {}},
      {kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Oslo\"}}\n</tool_call>",
       "",
       {{"get_weather", "{\"city\": \"Oslo\"}"}}},
      {kHermes,
       "I look.\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, {\"}\": "
       "\"]\\\"\"}]}}\n</tool_call>\n<tool_call>{\"name\":\"add\"}</tool_call>\n",
       "I look.",
       {{"add", "{\"a\": [1, {\"}\": \"]\\\"\"}]}"}, {"add", "{}"}}},
      // The arguments first, the end missing, and text after.
      {kHermes,
       "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"add\"} and more",
       " and more",
       {{"add", "{\"a\": 1}"}}},
      {kHermes,
       "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call> b <tool_call>{\"name\": "
       "\"add\", \"arguments\": \"{\\\"a\\\": 2}\"}</tool_call>",
       " b",
       {{"add", "{}"}, {"add", "{\"a\": 2}"}}},
      // No function of that name, no call, and a marker that breaks off.
      {kHermes,
       "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
       {}},
      {kHermes, "a < b <tool_ <tool_call <tool_", "a < b <tool_ <tool_call <tool_", {}},
      {kHermes, "say \n<tool_call> twice", "say \n<tool_call> twice", {}},
      {kHermes,
       "<tool_call><tool_call>{\"name\": \"add\"}</tool_call>",
       "<tool_call>",
       {{"add", "{}"}}},
      {kHermes, "<<tool_call>{\"name\": \"add\"}", "<", {{"add", "{}"}}},
      // Cut off.
      {kHermes,
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x",
       "",
       {{"add", "{\"a\": \"x"}}},
      {kHermes, "b <tool_call>{\"name\": \"ad", "b <tool_call>{\"name\": \"ad", {}},
      {kHermes, "<tool_call>{\"name\": \"add\"}</tool", "", {{"add", "{}"}}},
      {kHermes,
       "<tool_call>{\"name\": \"add\"}</tool_call>\n<tool_call>{\"na",
       "",
       {{"add", "{}"}}},
      {kHermes,
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"arguments\": {\"b\": 1}}",
       "",
       {{"add", "{\"a\": 1}"}}},
      {kLlama,
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
       "",
       {{"get_weather", "{\"city\": \"Oslo\"}"}}},
      {kLlama,
       " \n{\"type\": \"function\", \"name\": \"add\", \"parameters\": {}}",
       "",
       {{"add", "{}"}}},
      {kLlama,
       "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
       "",
       {{"add", "{\"a\": 1}"}}},
      {kLlama, "{\"name\": \"Peter\", \"age\": 5}", "{\"name\": \"Peter\", \"age\": 5}", {}},
      {kLlama, " {\"answer\": 5}", " {\"answer\": 5}", {}},
      {kLlama,
       "It is {\"name\": \"add\", \"parameters\": {}}",
       "It is {\"name\": \"add\", \"parameters\": {}}",
       {}},
      {kMistral,
       "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"get_weather\", "
       "\"arguments\": {}, \"id\": \"123456789\"}]",
       "",
       {{"add", "{\"a\": 1}"}, {"get_weather", "{}"}}},
      {kMistral, "[TOOL_CALLS] []", "[TOOL_CALLS] []", {}},
      {kMistral,
       "[TOOL_CALLS][{\"name\": \"add\"}, {\"name\": \"rm\"}]",
       ", {\"name\": \"rm\"}]",
       {{"add", "{}"}}},
      {kMistralNamed,
       "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]get_weather[ARGS] {}",
       "",
       {{"add", "{\"a\": 1}"}, {"get_weather", "{}"}}},
      {kMistralNamed, "[TOOL_CALLS]rm[ARGS]{}", "[TOOL_CALLS]rm[ARGS]{}", {}},
      {kCommand,
       "So.<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": "
       "{\"a\": 1}}\n]<|END_ACTION|>",
       "So.",
       {{"add", "{\"a\": 1}"}}},
      {kFunctionTag,
       "<function=add>{\"a\": 1}</function><function=get_weather>{}</function>",
       "",
       {{"add", "{\"a\": 1}"}, {"get_weather", "{}"}}},
  };
  return cases;
}

// Arguments one by one. Nothing is known of them: values are JSON where they can be.
const std::vector<ReaderCase>& BodyCases() {
  static const std::vector<ReaderCase> cases = {
      {kTags,
       "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork \"\n"
       "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=wet>\nTrue\n</parameter>\n"
       "</function>\n</tool_call>\n<tool_call><function=add></function></tool_call>",
       "I look.",
       {{"get_weather", "{\"city\": \"New\\nYork \\\"\", \"days\": 3, \"wet\": true}"},
        {"add", "{}"}}},
      {kTags,
       "<tool_call>\n<function=rm>\n</function>\n</tool_call>",
       "<tool_call>\n<function=rm>\n</function>\n</tool_call>",
       {}},
      {kTags, "<tool_call>\n{\"name\": \"add\"}", "<tool_call>\n{\"name\": \"add\"}", {}},
      // Marks that are missing, values twice, cut off.
      {kTags,
       "<tool_call><function=add><parameter=a>1</parameter> and <parameter=a>2</parameter>"
       "</tool_call> b",
       " b",
       {{"add", "{\"a\": 1}"}}},
      {kTags, "<tool_call><function=add><parameter=a>1", "", {{"add", "{"}}},
      {kTags,
       "<tool_call><function=add><parameter=a>1</parameter><par",
       "",
       {{"add", "{\"a\": 1"}}},
      {kArgTags,
       "Well.<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>[1, 2]</arg_value><arg_key>b"
       "</arg_key><arg_value>x < y</arg_value></tool_call>",
       "Well.",
       {{"add", "{\"a\": [1, 2], \"b\": \"x < y\"}"}}},
      {kArgTags,
       "<tool_call>add</tool_call><tool_call>get_weather</tool_call>",
       "",
       {{"add", "{}"}, {"get_weather", "{}"}}},
      {kArgTags, "<tool_call>rm</tool_call>", "<tool_call>rm</tool_call>", {}},
      {kPythonList,
       "So.<|tool_call_start|>[get_weather(city='New \\'York, (NY)', days=-3), add(a=[1, {'x': "
       "None}], b=True)]<|tool_call_end|>More.",
       "So.More.",
       {{"get_weather", "{\"city\": \"New 'York, (NY)\", \"days\": -3}"},
        {"add", "{\"a\": [1,{\"x\":null}], \"b\": true}"}}},
      {kPythonList,
       "<|tool_call_start|>[add(a=1), rm(a=1)]<|tool_call_end|>",
       ", rm(a=1)]<|tool_call_end|>",
       {{"add", "{\"a\": 1}"}}},
      {kPythonList, "<|tool_call_start|>[]", "<|tool_call_start|>[]", {}},
      {kPythonic,
       "[add(), get_weather(city=\"Oslo\")]",
       "",
       {{"add", "{}"}, {"get_weather", "{\"city\": \"Oslo\"}"}}},
      {kPythonic, "[1, 2, 3]", "[1, 2, 3]", {}},
      {kPythonic, "[rm(a=1)]", "[rm(a=1)]", {}},
      {kPythonic, "See [add(a=1)]", "See [add(a=1)]", {}},
      {kPythonic,
       "<|python_start|>[add(a=x + 1)]<|python_end|>",
       "",
       {{"add", "{\"a\": \"x + 1\"}"}}},
  };
  return cases;
}

std::vector<ReaderCase> AllCases() {
  std::vector<ReaderCase> all = ReaderCases();
  all.insert(all.end(), BodyCases().begin(), BodyCases().end());
  return all;
}

TEST(ToolCallReader, FindsTheCallsOfEverySyntax) {
  for (const ReaderCase& c : AllCases()) {
    const ToolSyntax* syntax = DetectToolSyntax(c.source);
    ASSERT_NE(syntax, nullptr) << c.source;
    const FoundInAnswer read = FindCalls(*syntax, Callable(kFunctions, *syntax), c.answer);
    EXPECT_EQ(read.text, c.text) << c.answer;
    EXPECT_EQ(read.calls, c.calls) << c.answer;
  }
}

// What answers are made of.
const std::vector<std::string>& AnswerWords() {
  static const std::vector<std::string> words = {"<tool_call>",
                                                 "</tool_call>",
                                                 "[TOOL_CALLS]",
                                                 "[ARGS]",
                                                 "<|python_tag|>",
                                                 "<function=",
                                                 "</function>",
                                                 "<|START_ACTION|>",
                                                 "<|END_ACTION|>",
                                                 "{\"name\": \"add\", \"arguments\": {",
                                                 "{\"tool_name\": \"add\", \"parameters\": {",
                                                 "}}",
                                                 "}",
                                                 "{",
                                                 "[",
                                                 "]",
                                                 "\"",
                                                 "\\",
                                                 "add",
                                                 "<parameter=",
                                                 "</parameter>",
                                                 "<arg_key>",
                                                 "</arg_key>",
                                                 "<arg_value>",
                                                 "</arg_value>",
                                                 "<|tool_call_start|>",
                                                 "<|tool_call_end|>",
                                                 "(",
                                                 ")",
                                                 "=",
                                                 "'",
                                                 ">",
                                                 " ",
                                                 "\n",
                                                 ",",
                                                 ":",
                                                 "\"name\"",
                                                 "\"arguments\"",
                                                 "1",
                                                 "<",
                                                 "\xC3\xA9"};
  return words;
}

// Answers made of it, cut anywhere.
TEST(ToolCallReader, PiecesChangeNothing) {
  std::mt19937 random(1);
  const std::vector<std::string>& words = AnswerWords();
  std::vector<std::string> answers;
  for (const ReaderCase& c : AllCases()) answers.emplace_back(c.answer);
  for (int i = 0; i < 3000; ++i) {
    std::string answer;
    for (size_t count = random() % 14; count > 0; --count) answer += words[random() % words.size()];
    answers.push_back(answer);
  }
  for (const char* source : {kHermes, kLlama, kMistral, kMistralNamed, kCommand, kFunctionTag,
                             kTags, kArgTags, kPythonList, kPythonic}) {
    const ToolSyntax& syntax = *DetectToolSyntax(source);
    for (const std::string& answer : answers) {
      const FoundInAnswer whole = FindCalls(syntax, Callable(kFunctions, syntax), answer);
      ToolCallReader reader(syntax, Callable(kFunctions, syntax));
      FoundInAnswer pieces;
      for (size_t at = 0; at < answer.size();) {
        const size_t length = 1 + random() % 5;
        pieces.Add(reader.Push(answer.substr(at, length)));
        at += length;
      }
      pieces.Add(reader.Finish());
      ASSERT_EQ(pieces.text, whole.text) << answer;
      ASSERT_EQ(pieces.calls, whole.calls) << answer;
      if (whole.calls.empty()) {
        EXPECT_EQ(whole.text, answer) << "nothing is lost";
      }
    }
  }
}

// Text that cannot become a call is told at once.
TEST(ToolCallReader, HoldsBackNoMoreThanItMust) {
  ToolCallReader reader(GenericToolSyntax(), Callable(kFunctions, GenericToolSyntax()));
  EXPECT_EQ(reader.Push("Hello").at(0).text, "Hello");
  EXPECT_TRUE(reader.Push(" <tool").empty());
  EXPECT_EQ(reader.Push("s>").at(0).text, " <tools>");
  EXPECT_TRUE(reader.Push("<tool_call>{\"name\": \"add").empty());
  EXPECT_EQ(reader.Push("\"").at(0).name, "add");
  EXPECT_EQ(reader.Push(", \"arguments\": {\"a\": 1").at(0).text, "{\"a\": 1");
}

TEST(ToolSyntax, IsToldFromTemplates) {
  const auto name = [](const char* source) {
    const ToolSyntax* syntax = DetectToolSyntax(source);
    return std::string(syntax == nullptr ? "none" : syntax->name);
  };
  EXPECT_EQ(name(kHermes), "hermes");
  EXPECT_EQ(name(kLlama), "llama-3");
  EXPECT_EQ(name(kMistral), "mistral");
  EXPECT_EQ(name(kMistralNamed), "mistral-named");
  EXPECT_EQ(name(kCommand), "command");
  EXPECT_EQ(name(kTags), "parameter-tags");
  EXPECT_EQ(name(kArgTags), "arg-tags");
  EXPECT_EQ(name(kPythonList), "python-list");
  EXPECT_EQ(name(kPythonic), "pythonic");
  EXPECT_EQ(name("<tool_call><function=x><parameter=y></function> arguments"), "none");
  EXPECT_EQ(name("<tool_call>{name}<arg_key> arguments"), "none");
  EXPECT_EQ(name("{% for m in messages %}"), "none");
  EXPECT_STREQ(GenericToolSyntax().name, "hermes");
}

}  // namespace
}  // namespace hearth
