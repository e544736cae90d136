// Chat templates: hostile ones, with hostile contexts.
//
// The input is a template and, behind a line of "---", the JSON of its context. Whatever it is, it
// is refused with hearth::Error or rendered, within bounds; and the rendering must have the marks
// that its origin demands: what the template does not hold cannot be trusted text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat/chat_template.h"
#include "text/jinja/template.h"

namespace {

using hearth::ChatPiece;

void Require(bool holds) {
  if (!holds) std::abort();
}

hearth::jinja::Limits SmallLimits() {
  hearth::jinja::Limits limits;
  limits.max_steps = 200'000;
  limits.max_bytes = size_t{16} << 20;
  limits.max_output_characters = 200'000;
  return limits;
}

// The context's texts are all of a letter that this template does not hold: none of them may come
// out trusted.
void CheckMarks(std::string_view source, const std::vector<ChatPiece>& pieces) {
  constexpr std::string_view kOnlyInContexts = "\xE2\x98\x83";
  if (source.find('\\') != std::string_view::npos ||
      source.find(kOnlyInContexts) != std::string_view::npos) {
    return;
  }
  for (const ChatPiece& piece : pieces) {
    Require(!piece.trusted || piece.text.find(kOnlyInContexts) == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n---\n";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find(kSeparator);
  const std::string_view source = input.substr(0, cut);
  const std::string_view json =
      cut == std::string_view::npos
          ? R"({"s": "☃", "l": [3, "☃", null, 1.5], "d": {"☃": {"k": "☃☃"}, "a": 1},
               "messages": [{"role": "user", "content": "☃ x"}], "n": 3, "tools": null})"
          : input.substr(cut + kSeparator.size());
  try {
    const hearth::jinja::Template parsed(source, "fuzz");
    const auto context = hearth::jinja::Context::FromJson(json, "context");
    const auto pieces = parsed.Render(context, SmallLimits());
    for (size_t i = 0; i < pieces.size(); ++i) {
      Require(!pieces[i].text.empty());
      Require(i == 0 || pieces[i].trusted != pieces[i - 1].trusted);
    }
    CheckMarks(source, pieces);
  } catch (const hearth::Error& error) {
    Require(error.code() == hearth::ErrorCode::kInvalidArgument);
  }
  return 0;
}
