#include "text/chat/harmony_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/chat/harmony.h"
#include "text/chat/mark_grammar.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/grammar/json_schema_grammar.h"

namespace hearth {
namespace {

using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

class HarmonyGrammarMaker {
 public:
  HarmonyGrammarMaker(const std::vector<ToolFunction>& functions, const ToolGrammarOptions& options,
                      const Tokenizer& tokenizer, std::shared_ptr<GrammarMemory> memory)
      : functions_(functions),
        options_(options),
        start_(MarkBytes(tokenizer, kHarmonyStart)),
        channel_(MarkBytes(tokenizer, kHarmonyChannel)),
        constrain_(MarkBytes(tokenizer, kHarmonyConstrain)),
        message_(MarkBytes(tokenizer, kHarmonyMessage)),
        end_(MarkBytes(tokenizer, kHarmonyEnd)),
        builder_(std::move(memory)),
        parts_(builder_) {}

  Grammar Run() {
    const uint32_t answer = builder_.NewRule();
    builder_.AddAlternative(answer, Before("analysis", answer));
    const bool is_free = !options_.must_call && !options_.answer_schema;
    if (is_free) builder_.AddAlternative(answer, Before("commentary", answer));
    if (!options_.must_call) builder_.AddAlternative(answer, Final());
    for (const ToolFunction& function : functions_) AddCalls(function, answer);
    return builder_.Build(answer);
  }

 private:
  Sequence Join(const std::vector<std::string_view>& texts) {
    std::string joined;
    for (const std::string_view text : texts) joined += text;
    return builder_.Literal(joined);
  }

  // A message of that channel, after which the answer goes on.
  Sequence Before(std::string_view channel, uint32_t answer) {
    Sequence next = Join({start_, "assistant"});
    next.push_back(GrammarBuilder::Rule(answer));
    Sequence message = Join({channel_, channel, message_});
    message.push_back(TextUpTo(builder_, end_, builder_.AnyOf({next})));
    return message;
  }

  // The words in a header that say that a content is JSON, or none.
  Symbol JsonType() {
    return builder_.AnyOf(
        {{}, Join({constrain_, "json"}), Join({" ", constrain_, "json"}), Join({" json"})});
  }

  Sequence Final() {
    Sequence message = Join({channel_, "final"});
    if (options_.answer_schema) message.push_back(JsonType());
    const Sequence begin = Join({message_});
    message.insert(message.end(), begin.begin(), begin.end());
    message.push_back(!options_.answer_schema           ? AnyText(builder_)
                      : options_.answer_schema->empty() ? parts_.object()
                                                        : Document(*options_.answer_schema));
    return message;
  }

  Symbol Document(const std::string& schema) {
    return AddJsonSchema(builder_, parts_, schema, JsonKind::kAny);
  }

  // Models name the function before the channel, or after it.
  void AddCalls(const ToolFunction& function, uint32_t answer) {
    Sequence rest = {JsonType()};
    const Sequence begin = Join({message_});
    rest.insert(rest.end(), begin.begin(), begin.end());
    rest.push_back(AddArguments(builder_, parts_, function, options_));
    const Symbol arguments = builder_.AnyOf({rest});
    const std::string recipient = " to=" + std::string(kHarmonyFunctions) + function.name;
    for (Sequence header :
         {Join({channel_, "commentary", recipient}), Join({recipient, channel_, "commentary"})}) {
      header.push_back(arguments);
      builder_.AddAlternative(answer, header);
    }
  }

  const std::vector<ToolFunction>& functions_;
  const ToolGrammarOptions& options_;
  const std::string start_, channel_, constrain_, message_, end_;
  GrammarBuilder builder_;
  JsonGrammarParts parts_;
};

}  // namespace

std::shared_ptr<const Grammar> HarmonyGrammar(const std::vector<ToolFunction>& functions,
                                              const ToolGrammarOptions& options,
                                              const Tokenizer& tokenizer,
                                              std::shared_ptr<GrammarMemory> memory) {
  const bool any_strict = std::any_of(functions.begin(), functions.end(),
                                      [](const ToolFunction& function) { return function.strict; });
  if (!options.must_call && !any_strict && !options.answer_schema) return nullptr;
  return std::make_shared<const Grammar>(
      HarmonyGrammarMaker(functions, options, tokenizer, std::move(memory)).Run());
}

}  // namespace hearth
