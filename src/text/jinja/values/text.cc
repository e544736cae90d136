#include "text/jinja/values/text.h"

#include "text/tokenizer/utf8.h"

namespace hearth::jinja {

Text DecodeText(std::string_view utf8, bool trusted) {
  constexpr char32_t kReplacement = 0xFFFD;
  const char32_t mark = trusted ? kTrustedMark : 0;
  Text text;
  text.reserve(utf8.size());
  while (!utf8.empty()) {
    const Utf8Char next = ScanUtf8(utf8);
    text += (next.status == Utf8Status::kComplete ? next.code_point : kReplacement) | mark;
    utf8.remove_prefix(next.length);
  }
  return text;
}

std::string EncodeUtf8(TextView text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t marked : text) {
    const char32_t c = Plain(marked);
    const auto continuation = [&](int shift) {
      out += static_cast<char>(0x80 | ((c >> shift) & 0x3F));
    };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      continuation(0);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      continuation(6);
      continuation(0);
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      continuation(12);
      continuation(6);
      continuation(0);
    }
  }
  return out;
}

}  // namespace hearth::jinja
