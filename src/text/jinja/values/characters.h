// What Python's str methods know about single characters.
#pragma once

#include "text/jinja/values/text.h"

namespace hearth::jinja {

// All take plain or marked characters.
bool IsSpace(char32_t c);
bool IsPrintable(char32_t c);      // repr shows it as it is
bool IsLetter(char32_t c);         // str.isalpha
bool IsDecimal(char32_t c);        // str.isdecimal
bool IsDigit(char32_t c);          // str.isdigit: decimals and the like of superscripts
bool IsNumeric(char32_t c);        // str.isnumeric
bool IsWordCharacter(char32_t c);  // \w of a regular expression
bool IsLowercase(char32_t c);
bool IsUppercase(char32_t c);
bool IsTitlecase(char32_t c);
bool IsCased(char32_t c);
bool IsLineBreak(char32_t c);  // where str.splitlines splits
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);
// The value of a decimal digit of any script; -1 for other characters.
int DecimalValue(char32_t c);

// Case of whole texts; a letter may become several. Marks are those of the letters.
Text Upper(TextView text);
Text Lower(TextView text);
Text Capitalize(TextView text);  // the first letter in title case, the others small
Text SwapCase(TextView text);
Text TitleWords(TextView text);  // str.title
Text CaseFold(TextView text);

}  // namespace hearth::jinja
