// JSON Schemas, and answers that call tools.
//
// The first byte chooses. A schema becomes a grammar or is refused with hearth::Error; what is then
// written under the grammar, as the bytes behind it choose, is JSON. An answer is read for calls in
// one piece and byte by byte, with the same result, and loses nothing where it has none.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammar_matcher.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/tokenizer/test_vocabularies.h"
#include "text/tools/tool_call_grammar.h"
#include "text/tools/tool_call_reader.h"

namespace {

using namespace hearth;

void Require(bool condition) {
  if (!condition) std::abort();
}

// One token per byte is enough: masks over many are tested elsewhere.
const Tokenizer& ByteTokenizer() {
  static const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
  return *tokenizer;
}

// Follows the grammar: of the bytes that it allows each choice takes one.
std::string Write(const std::shared_ptr<const Grammar>& grammar, std::string_view choices,
                  bool* finished) {
  static const auto vocabulary = std::make_shared<const SortedVocabulary>(ByteTokenizer());
  GrammarMatcher matcher(grammar, vocabulary);
  std::string text;
  for (const char choice : choices) {
    const TokenMask& mask = matcher.AllowedTokens();
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < 256; ++id) {  // the byte letters
      if (IsAllowed(mask, id)) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    const TokenId id = allowed[static_cast<uint8_t>(choice) % allowed.size()];
    Require(matcher.Advance(id));
    text += ByteTokenizer().TokenBytes(id);
  }
  *finished = matcher.IsFinished();
  return text;
}

constexpr size_t kMostChoices = 200;

void CheckSchema(std::string_view input) {
  constexpr std::string_view kSeparator = "\n---\n";
  const size_t cut = input.find(kSeparator);
  const std::string_view schema = input.substr(0, cut);
  const std::string_view choices =
      cut == std::string_view::npos ? "0123" : input.substr(cut + kSeparator.size());
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = JsonSchemaGrammar(schema);
  } catch (const Error& error) {
    Require(error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported);
    return;
  }
  bool finished = false;
  const std::string text = Write(grammar, choices.substr(0, kMostChoices), &finished);
  Require(!finished || nlohmann::json::accept(text));
}

struct Sum {
  std::string text, calls;
  void Add(const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      if (part.call) {
        if (!part.name.empty()) calls += "\n" + part.name + " ";
        calls += part.text;
      } else {
        text += part.text;
      }
    }
  }
};

void CheckAnswer(const ToolSyntax& syntax, std::string_view answer) {
  const auto functions = MakeCallable({{.name = "add"}, {.name = "get_weather"}}, syntax);
  ToolCallReader whole(syntax, functions), bytes(syntax, functions);
  Sum sum, sum_of_bytes;
  sum.Add(whole.Push(answer));
  sum.Add(whole.Finish());
  for (size_t i = 0; i < answer.size(); ++i) sum_of_bytes.Add(bytes.Push(answer.substr(i, 1)));
  sum_of_bytes.Add(bytes.Finish());
  Require(sum.text == sum_of_bytes.text && sum.calls == sum_of_bytes.calls);
  Require(whole.num_calls() > 0 || sum.text == answer);
}

// "a" is one of two texts, "b" a number.
ToolFunction Add() {
  return {.name = "add",
          .description = "",
          .parameters = R"({"type": "object", "properties": {"a": {"enum": ["x", "y z"]},
                            "b": {"type": "integer"}}})"};
}

std::shared_ptr<const Grammar> ForcedCalls(const ToolSyntax& syntax) {
  static std::map<const ToolSyntax*, std::shared_ptr<const Grammar>> made;
  std::shared_ptr<const Grammar>& grammar = made[&syntax];
  if (!grammar) {
    grammar = ToolCallGrammar(syntax, {Add()}, {.must_call = true}, ByteTokenizer());
  }
  return grammar;
}

// What is written under a grammar that forces calls are calls.
void CheckForcedCalls(const ToolSyntax& syntax, std::string_view choices) {
  const std::shared_ptr<const Grammar> grammar = ForcedCalls(syntax);
  bool finished = false;
  const std::string text = Write(grammar, choices.substr(0, kMostChoices), &finished);
  if (!finished) return;
  ToolCallReader reader(syntax, MakeCallable({Add()}, syntax));
  Sum sum;
  sum.Add(reader.Push(text));
  sum.Add(reader.Finish());
  Require(sum.text.empty() && reader.num_calls() > 0 && !reader.is_inside_call());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t choice = data[0];
  const ToolSyntax& syntax = *AllToolSyntaxes()[choice / 3 % AllToolSyntaxes().size()];
  if (choice % 3 == 0) CheckSchema(input);
  if (choice % 3 == 1) CheckAnswer(syntax, input);
  if (choice % 3 == 2) CheckForcedCalls(syntax, input);
  return 0;
}
