#include "text/jinja/values/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja/values/case_tables.h"

namespace hearth::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(Plain(c)));
}

bool InCategories(char32_t c, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = Category(c);
  return category >= first && category <= last;
}

const LongCapital* FindLongCapital(char32_t c) {
  const auto* found =
      std::lower_bound(std::begin(kLongCapitals), std::end(kLongCapitals), Plain(c),
                       [](const LongCapital& row, char32_t letter) { return row.letter < letter; });
  return found != std::end(kLongCapitals) && found->letter == Plain(c) ? found : nullptr;
}

void Append(Text& out, const char32_t* letters, char32_t like) {
  for (; *letters != 0; ++letters) out += MarkedLike(*letters, like);
}

void AppendUpper(Text& out, char32_t c) {
  if (const LongCapital* row = FindLongCapital(c)) return Append(out, row->upper, c);
  const auto upper = utf8proc_toupper(static_cast<utf8proc_int32_t>(Plain(c)));
  out += MarkedLike(static_cast<char32_t>(upper), c);
}

void AppendTitle(Text& out, char32_t c) {
  if (const LongCapital* row = FindLongCapital(c)) return Append(out, row->title, c);
  const auto title = utf8proc_totitle(static_cast<utf8proc_int32_t>(Plain(c)));
  out += MarkedLike(static_cast<char32_t>(title), c);
}

// Characters that stand between letters without ending a word, as Unicode's rule for sigma has it.
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return Plain(c) == '\'' || Plain(c) == '.' || Plain(c) == ':' || Plain(c) == 0xB7 ||
             Plain(c) == 0x2019;
  }
}

// A capital sigma at the end of a word has a small form of its own.
bool IsFinalSigma(TextView text, size_t at) {
  size_t before = at;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

void AppendLower(Text& out, TextView text, size_t at) {
  constexpr char32_t kDottedI = 0x130;
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  constexpr char32_t kDotAbove = 0x307;
  const char32_t c = text[at];
  if (Plain(c) == kDottedI) {
    out += MarkedLike('i', c);
    out += MarkedLike(kDotAbove, c);
  } else if (Plain(c) == kSigma && IsFinalSigma(text, at)) {
    out += MarkedLike(kFinalSigma, c);
  } else {
    const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(Plain(c)));
    out += MarkedLike(static_cast<char32_t>(lower), c);
  }
}

}  // namespace

bool IsSpace(char32_t c) {
  c = Plain(c);
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || InCategories(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool IsPrintable(char32_t c) {
  if (Plain(c) == ' ') return true;
  return !InCategories(c, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_CO) &&
         Category(c) != UTF8PROC_CATEGORY_CN;
}

bool IsLetter(char32_t c) { return InCategories(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO); }
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t c) {
  c = Plain(c);
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || (c >= 0x2776 && c <= 0x277E);
}

bool IsNumeric(char32_t c) { return InCategories(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO); }

bool IsWordCharacter(char32_t c) { return IsLetter(c) || IsNumeric(c) || Plain(c) == '_'; }

bool IsLowercase(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL ||
         utf8proc_islower(static_cast<utf8proc_int32_t>(Plain(c))) != 0;
}

bool IsUppercase(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU ||
         utf8proc_isupper(static_cast<utf8proc_int32_t>(Plain(c))) != 0;
}

bool IsTitlecase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t c) { return IsLowercase(c) || IsUppercase(c) || IsTitlecase(c); }

bool IsLineBreak(char32_t c) {
  c = Plain(c);
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsIdentifierStart(char32_t c) {
  return Plain(c) == '_' || IsLetter(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  return IsIdentifierStart(c) || IsDecimal(c) || Plain(c) == 0xB7 ||
         InCategories(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC) ||
         Category(c) == UTF8PROC_CATEGORY_PC;
}

int DecimalValue(char32_t c) {
  c = Plain(c);
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (!IsDecimal(c)) return -1;
  // The digits of a script follow each other from zero on.
  char32_t first = c;
  while (IsDecimal(first - 1)) --first;
  return static_cast<int>((c - first) % 10);
}

Text Upper(TextView text) {
  Text out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUpper(out, c);
  return out;
}

Text Lower(TextView text) {
  Text out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) AppendLower(out, text, i);
  return out;
}

Text Capitalize(TextView text) {
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 0) {
      AppendTitle(out, text[i]);
    } else {
      AppendLower(out, text, i);
    }
  }
  return out;
}

Text SwapCase(TextView text) {
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsUppercase(text[i])) {
      AppendLower(out, text, i);
    } else if (IsLowercase(text[i])) {
      AppendUpper(out, text[i]);
    } else {
      out += text[i];
    }
  }
  return out;
}

Text TitleWords(TextView text) {
  Text out;
  bool in_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_word) {
      AppendLower(out, text, i);
    } else {
      AppendTitle(out, text[i]);
    }
    in_word = IsCased(text[i]);
  }
  return out;
}

Text CaseFold(TextView text) {
  Text out;
  for (const char32_t c : text) {
    utf8proc_int32_t folded[8];
    int boundary = UTF8PROC_BOUNDCLASS_START;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(Plain(c)), folded, 8,
                                               UTF8PROC_CASEFOLD, &boundary);
    if (count < 1 || count > 8) {
      out += c;
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      out += MarkedLike(static_cast<char32_t>(folded[i]), c);
    }
  }
  return out;
}

}  // namespace hearth::jinja
