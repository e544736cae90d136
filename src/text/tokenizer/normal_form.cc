#include "text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

// No character composes or changes its place across one of these, whatever comes before it: Latin
// up to U+02FF, ideographs and whole Hangul syllables.
bool BeginsAnew(uint32_t c) {
  return c < 0x300 || (c >= 0x3400 && c < 0x4DC0) || (c >= 0x4E00 && c < 0xA000) ||
         (c >= 0xAC00 && c < 0xD7A4);
}

// Bounds the memory of one call of Normalize: no text of a language has as many characters without
// one that begins anew.
constexpr size_t kMaxRunBytes = size_t{1} << 20;

int ClassOf(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Marks in canonical order: a stable sort of each run of them.
void SortMarks(std::vector<utf8proc_int32_t>& characters) {
  for (auto begin = characters.begin(); begin != characters.end();) {
    if (ClassOf(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, characters.end(), [](utf8proc_int32_t c) { return ClassOf(c) == 0; });
    std::stable_sort(
        begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) { return ClassOf(a) < ClassOf(b); });
    begin = end;
  }
}

// `run` is UTF-8.
void AppendNormalized(std::string_view run, std::string* out) {
  constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(run.size());
  std::array<utf8proc_int32_t, 8> parts{};  // no character has more than four
  while (!run.empty()) {
    const Utf8Char next = ScanUtf8(run);
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code_point), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), kDecompose, &boundary);
    const auto kept = std::clamp<utf8proc_ssize_t>(count, 0, std::ssize(parts));
    characters.insert(characters.end(), parts.begin(), parts.begin() + kept);
    run.remove_prefix(next.length);
  }
  SortMarks(characters);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(
      characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), kCompose);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const utf8proc_ssize_t size =
        utf8proc_encode_char(characters[static_cast<size_t>(i)], bytes.data());
    out->append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
  }
}

}  // namespace

std::string ToNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t run = 0;        // where what has not been written yet begins
  bool is_plain = true;  // and whether it is one character that begins anew
  size_t at = 0;
  const auto flush = [&] {
    const std::string_view piece = text.substr(run, at - run);
    if (is_plain) {
      out += piece;
    } else {
      AppendNormalized(piece, &out);
    }
    run = at;
    is_plain = true;
  };
  while (at < text.size()) {
    const Utf8Char next = ScanUtf8(text.substr(at));
    if (next.status != Utf8Status::kComplete) {
      flush();
      out += text.substr(at, next.length);
      at += next.length;
      run = at;
      continue;
    }
    if (BeginsAnew(next.code_point) || at - run >= kMaxRunBytes) flush();
    is_plain = is_plain && at == run && BeginsAnew(next.code_point);
    at += next.length;
  }
  flush();
  return out;
}

}  // namespace hearth
