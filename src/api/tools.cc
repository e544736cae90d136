#include "api/tools.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace hearth::api {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& what) {
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"tools"},
                      "function '" + Printable(name) + "': " + what);
}

std::vector<AnswerPart> ToApi(std::vector<hearth::AnswerPart> parts) {
  std::vector<AnswerPart> out;
  for (hearth::AnswerPart& part : parts) {
    const auto kind = part.call         ? AnswerPart::Kind::kCall
                      : part.is_thought ? AnswerPart::Kind::kThought
                                        : AnswerPart::Kind::kText;
    out.push_back({kind, part.call.value_or(0), std::move(part.name), std::move(part.text)});
  }
  return out;
}

}  // namespace

ToolFormat::ToolFormat(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ToolFormat::~ToolFormat() = default;

std::shared_ptr<const Grammar> ToolFormat::Impl::MakeGrammar(
    const std::optional<std::string>& answer_schema, const Tokenizer& tokenizer,
    std::shared_ptr<GrammarMemory> memory) const {
  const bool any_strict = std::any_of(functions.begin(), functions.end(),
                                      [](const ToolFunction& function) { return function.strict; });
  if (!must_call && !any_strict && parallel && !answer_schema) return nullptr;
  return ToolCallGrammar(syntax, functions, GrammarOptions(answer_schema), tokenizer,
                         std::move(memory));
}

ToolGrammarOptions ToolFormat::Impl::GrammarOptions(
    const std::optional<std::string>& answer_schema) const {
  return {.must_call = must_call, .takes_many = parallel, .answer_schema = answer_schema};
}

std::vector<ToolFunction> ToEngine(const ToolOptions& options) {
  std::vector<ToolFunction> functions;
  std::set<std::string> names;
  for (const Tool& tool : options.tools) {
    if (!IsFunctionName(tool.name)) {
      Refuse(tool.name, "names have 1 to 64 letters, digits, '_' and '-'");
    }
    if (!names.insert(tool.name).second) Refuse(tool.name, "there are two of that name");
    functions.push_back({tool.name, tool.description, tool.parameters, tool.strict});
  }
  if (options.must_call && functions.empty()) Refuse(options.function, "there are no tools");
  if (!options.function.empty() && names.count(options.function) == 0) {
    Refuse(options.function, "it is none of the tools");
  }
  return functions;
}

std::shared_ptr<const ToolFormat> MakeToolFormat(const ToolOptions& options,
                                                 std::vector<ToolFunction> functions,
                                                 const ToolSyntax& syntax) {
  if (functions.empty()) return nullptr;
  if (options.must_call && !options.function.empty()) {
    std::erase_if(functions,
                  [&](const ToolFunction& function) { return function.name != options.function; });
  }
  // A model that is held to one function would call it again and again.
  const bool takes_many = options.parallel && !(options.must_call && !options.function.empty());
  auto callable = MakeCallable(functions, syntax);
  return std::make_shared<const ToolFormat>(
      std::make_unique<const ToolFormat::Impl>(ToolFormat::Impl{
          syntax, std::move(functions), options.must_call, takes_many, std::move(callable)}));
}

std::vector<hearth::ChatMessage> ToEngine(const std::vector<ChatMessage>& messages) {
  std::vector<hearth::ChatMessage> out;
  for (const ChatMessage& message : messages) {
    out.push_back({message.role, message.content, {}, message.tool_call_id, message.reasoning});
    for (const ToolCall& call : message.tool_calls) {
      out.back().tool_calls.push_back({call.id, call.name, call.arguments});
    }
  }
  return out;
}

hearth::Thinking ToEngine(const Thinking& thinking) {
  return {thinking.begin, thinking.end, thinking.is_open, thinking.has_channels};
}

AnswerForm FormOf(const std::shared_ptr<const ToolFormat>& tools,
                  const std::optional<Thinking>& thinking) {
  AnswerForm form;
  if (thinking) form.thinking = ToEngine(*thinking);
  if (tools) {
    form.syntax = &tools->impl().syntax;
    form.functions = tools->impl().callable;
  }
  return form;
}

struct AnswerReader::Impl {
  std::shared_ptr<const ToolFormat> tools;  // whose syntax the reader uses
  hearth::AnswerReader reader;
};

AnswerReader::AnswerReader(const std::optional<Thinking>& thinking,
                           std::shared_ptr<const ToolFormat> tools) {
  const AnswerForm form = FormOf(tools, thinking);
  impl_ = std::make_unique<Impl>(Impl{std::move(tools), hearth::AnswerReader(form)});
}
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;
AnswerReader::~AnswerReader() = default;

std::vector<AnswerPart> AnswerReader::Push(std::string_view text) {
  return ToApi(impl_->reader.Push(text));
}
std::vector<AnswerPart> AnswerReader::Finish() { return ToApi(impl_->reader.Finish()); }
bool AnswerReader::ends_in_calls() const { return impl_->reader.ends_in_calls(); }

}  // namespace hearth::api
