#include "text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/syntax/parser.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/memory_meter.h"

namespace hearth::jinja {
namespace {

[[noreturn]] void Refuse(const std::string& name, const Failure& failure, int line) {
  constexpr size_t kLongest = 300;
  const bool is_refused = dynamic_cast<const MemoryRefused*>(&failure) != nullptr;
  throw Error(is_refused ? ErrorCode::kOutOfBudget : ErrorCode::kInvalidArgument, name,
              fmt::format("line {}: {}", line, Printable(failure.what(), kLongest)));
}

std::vector<ChatPiece> Pieces(const Text& text) {
  std::vector<ChatPiece> pieces;
  TakeMemory(text.size());  // of UTF-8, at least
  for (size_t at = 0; at < text.size();) {
    const bool trusted = IsTrusted(text[at]);
    size_t end = at + 1;
    while (end < text.size() && IsTrusted(text[end]) == trusted) ++end;
    pieces.push_back({EncodeUtf8(TextView(text).substr(at, end - at)), trusted});
    at = end;
  }
  return pieces;
}

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    tree_ = std::make_unique<const TemplateAst>(ParseTemplate(source));
  } catch (const Failure& failure) {
    Refuse(name_, failure, std::max(failure.line(), 1));
  }
}

Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

std::vector<ChatPiece> Template::Render(const Context& context, const Limits& limits) const {
  MemoryMeter own_meter(limits.max_bytes);
  MemoryMeter* const around = MemoryMeter::current();
  const MeterScope scope(around != nullptr ? *around : own_meter);
  Runtime runtime(limits);
  try {
    return Pieces(Interpreter(runtime, *tree_, context.dict()).Run());
  } catch (const Failure& failure) {
    Refuse(name_, failure, failure.line() > 0 ? failure.line() : runtime.line);
  }
}

}  // namespace hearth::jinja
