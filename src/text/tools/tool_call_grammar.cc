#include "text/tools/tool_call_grammar.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/grammar/grammar_matcher.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/tools/argument_grammar.h"

namespace hearth {
namespace {

using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

// The control token of that text, -1 where it is none.
TokenId ControlToken(const Tokenizer& tokenizer, std::string_view text) {
  const TokenId id = text.empty() ? -1 : tokenizer.FindToken(text);
  return id >= 0 && tokenizer.type(id) == TokenType::kControl ? id : -1;
}

// What `of_schema` makes where the arguments keep to the function's schema, else what `any` makes.
template <typename AnyFn, typename SchemaFn>
Symbol KeptArguments(const ToolFunction& function, const ToolGrammarOptions& options, AnyFn&& any,
                     SchemaFn&& of_schema) {
  if (!options.must_call && !function.strict) return any();
  try {
    return of_schema();
  } catch (const Error& error) {
    const bool is_about_schema =
        error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kInvalidArgument;
    if (is_about_schema && !function.strict) return any();
    throw Error(error.code(), Field{"tools"},
                "function '" + Printable(function.name) + "': " + error.what());
  }
}

class ToolGrammarMaker {
 public:
  ToolGrammarMaker(const ToolSyntax& syntax, const std::vector<ToolFunction>& functions,
                   const ToolGrammarOptions& options, const Tokenizer& tokenizer,
                   std::shared_ptr<GrammarMemory> memory)
      : syntax_(syntax),
        functions_(functions),
        options_(options),
        begin_(MarkerBytes(tokenizer, syntax.begin)),
        end_(MarkerBytes(tokenizer, syntax.end)),
        name_begin_(MarkerBytes(tokenizer, syntax.name_begin)),
        name_end_(MarkerBytes(tokenizer, syntax.name_end)),
        close_(MarkerBytes(tokenizer, syntax.close)),
        builder_(std::move(memory)),
        parts_(builder_),
        arguments_(builder_, parts_, syntax,
                   {.key_begin = MarkerBytes(tokenizer, syntax.key_begin),
                    .key_end = MarkerBytes(tokenizer, syntax.key_end),
                    .value_begin = MarkerBytes(tokenizer, syntax.value_begin),
                    .value_end = MarkerBytes(tokenizer, syntax.value_end)}) {}

  Grammar Run() {
    AddObjects();
    const Symbol answer = Answer();
    try {
      return builder_.Build(answer.index);
    } catch (const Error& error) {
      throw Error(error.code(), Field{"tools"}, error.what());
    }
  }

 private:
  using Form = ToolSyntax::Form;

  static std::string MarkerBytes(const Tokenizer& tokenizer, std::string_view marker) {
    const TokenId id = ControlToken(tokenizer, marker);
    return id >= 0 ? ControlTokenBytes(id) : std::string(marker);
  }

  void Append(Sequence& sequence, std::string_view text) {
    const Sequence literal = builder_.Literal(text);
    sequence.insert(sequence.end(), literal.begin(), literal.end());
  }

  Symbol Arguments(const ToolFunction& function) {
    if (!syntax_.has_body()) return AddArguments(builder_, parts_, function, options_);
    return KeptArguments(
        function, options_, [&] { return arguments_.Any(); },
        [&] { return arguments_.Of(function); });
  }

  // What follows the name's marker, or "{", up to the end of the call without its marker.
  void AddObjects() {
    std::vector<Sequence> calls;
    for (const ToolFunction& function : functions_) {
      Sequence call;
      const auto key = [&](std::string_view name) {
        Append(call, "\"" + std::string(name) + "\":");
        call.push_back(parts_.space());
      };
      if (syntax_.form == Form::kTagged) {
        Append(call, name_begin_);
        Append(call, function.name);
        Append(call, name_end_);
        call.push_back(Arguments(function));
        if (!close_.empty()) call.push_back(parts_.space());
        Append(call, close_);
      } else if (syntax_.form == Form::kPython) {
        Append(call, function.name + "(");
        call.push_back(Arguments(function));
        Append(call, ")");
      } else if (syntax_.form == Form::kNamed) {
        Append(call, function.name);
        Append(call, name_end_);
        call.push_back(Arguments(function));
      } else {
        call.push_back(parts_.space());
        key(syntax_.name_key);
        Append(call, "\"" + function.name + "\",");
        call.push_back(parts_.space());
        key(syntax_.arguments_key);
        call.push_back(Arguments(function));
        call.push_back(parts_.space());
        Append(call, "}");
      }
      calls.push_back(std::move(call));
    }
    object_rest_ = builder_.AnyOf(calls);
  }

  bool takes_many() const { return options_.takes_many && syntax_.takes_many; }

  Sequence List() {
    Sequence item = {object_rest_};
    if (syntax_.form == Form::kList) item.insert(item.begin(), builder_.Byte('{'));
    return parts_.list('[', ']', item, 1, takes_many() ? -1 : 1);
  }

  // After the first `begin`.
  Symbol CallsAfterBegin() {
    if (syntax_.form == Form::kList || syntax_.form == Form::kPython) {
      Sequence list = {parts_.space()};
      const Sequence items = List();
      list.insert(list.end(), items.begin(), items.end());
      Append(list, end_);
      return builder_.AnyOf({list});
    }
    Sequence one;
    if (syntax_.form == Form::kTagged) one = {parts_.space()};
    if (syntax_.form == Form::kObject) one = {parts_.space(), builder_.Byte('{')};
    one.push_back(object_rest_);
    if (!end_.empty()) {
      one.push_back(parts_.space());
      Append(one, end_);
    }
    const Symbol first = builder_.AnyOf({one});
    if (!takes_many()) return first;
    Sequence next = {parts_.space()};
    Append(next, begin_);
    next.push_back(first);
    return builder_.AnyOf({{first, builder_.Repeat(next, 0, -1)}});
  }

  Symbol Answer() {
    const Symbol after_begin = CallsAfterBegin();
    Sequence calls;
    if (syntax_.is_bare) {
      calls = syntax_.form == Form::kPython ? List() : Sequence{builder_.Byte('{'), object_rest_};
    } else {
      Append(calls, begin_);
      calls.push_back(after_begin);
    }
    if (options_.must_call) return builder_.AnyOf({calls});
    if (options_.answer_schema) {
      const Symbol document =
          options_.answer_schema->empty()
              ? parts_.object()
              : AddJsonSchema(builder_, parts_, *options_.answer_schema, JsonKind::kAny);
      return builder_.AnyOf({calls, {document}});
    }
    return Text(after_begin, calls);
  }

  // Any text, in which calls follow `begin`, as the reader finds them: a rule for every length of
  // the beginning of `begin` that the text so far ends with.
  Symbol Text(Symbol after_begin, const Sequence& calls) {
    std::vector<uint32_t> rules;
    for (size_t i = 0; i < begin_.size(); ++i) rules.push_back(builder_.NewRule());
    const auto goes_on = [&](size_t length) {
      return length == begin_.size() ? after_begin : GrammarBuilder::Rule(rules[length]);
    };
    for (size_t i = 0; i < begin_.size(); ++i) {
      builder_.AddAlternative(rules[i], {});
      for (const auto& [length, set] : NextLengths(i)) {
        builder_.AddAlternative(rules[i], {builder_.Bytes(set), goes_on(length)});
      }
    }
    if (!syntax_.is_bare) return GrammarBuilder::Rule(rules[0]);
    // An answer that begins like an object, or a list, is a call.
    const uint32_t start = builder_.NewRule();
    builder_.AddAlternative(start, {});
    builder_.AddAlternative(start, calls);
    ByteSet spaces;
    for (const char space : {' ', '\t', '\n', '\r'}) spaces.set(static_cast<uint8_t>(space));
    builder_.AddAlternative(start, {builder_.Bytes(spaces), GrammarBuilder::Rule(start)});
    for (auto [length, set] : NextLengths(0)) {
      set &= ~spaces;
      set.reset(syntax_.form == Form::kPython ? '[' : '{');
      if (set.any()) builder_.AddAlternative(start, {builder_.Bytes(set), goes_on(length)});
    }
    return GrammarBuilder::Rule(start);
  }

  // Where each byte leads after so much of `begin`.
  std::map<size_t, ByteSet> NextLengths(size_t length) const {
    std::map<size_t, ByteSet> next;
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::string text = begin_.substr(0, length) + static_cast<char>(byte);
      size_t longest = text.size();
      while (text.compare(text.size() - longest, longest, begin_, 0, longest) != 0) --longest;
      next[longest].set(byte);
    }
    return next;
  }

  const ToolSyntax& syntax_;
  const std::vector<ToolFunction>& functions_;
  const ToolGrammarOptions& options_;
  const std::string begin_, end_, name_begin_, name_end_, close_;
  GrammarBuilder builder_;
  JsonGrammarParts parts_;
  ArgumentGrammar arguments_;
  Symbol object_rest_;
};

}  // namespace

Symbol AddArguments(GrammarBuilder& builder, JsonGrammarParts& parts, const ToolFunction& function,
                    const ToolGrammarOptions& options) {
  return KeptArguments(
      function, options, [&] { return parts.object(); },
      [&] { return AddJsonSchema(builder, parts, ParametersOf(function), JsonKind::kObject); });
}

std::shared_ptr<const Grammar> ToolCallGrammar(const ToolSyntax& syntax,
                                               const std::vector<ToolFunction>& functions,
                                               const ToolGrammarOptions& options,
                                               const Tokenizer& tokenizer,
                                               std::shared_ptr<GrammarMemory> memory) {
  return std::make_shared<const Grammar>(
      ToolGrammarMaker(syntax, functions, options, tokenizer, std::move(memory)).Run());
}

std::vector<TokenId> ToolMarkerTokens(const ToolSyntax& syntax, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const std::string_view marker :
       {syntax.begin, syntax.end, syntax.name_begin, syntax.name_end, syntax.key_begin,
        syntax.key_end, syntax.value_begin, syntax.value_end, syntax.close}) {
    const TokenId id = ControlToken(tokenizer, marker);
    if (id >= 0) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace hearth
