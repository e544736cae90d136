// Numbers as Python writes and reads them.
#pragma once

#include <compare>
#include <optional>
#include <string>

#include "text/jinja/values/text.h"

namespace hearth::jinja {

// Python's integers have no bound; these reach about 1.7e38, and what passes that is refused.
__extension__ typedef __int128 Int;

// Exact also where a double cannot hold the integer; unordered for nan.
std::partial_ordering CompareNumbers(Int integer, double real);

std::string IntText(Int value);
// Shortest text that reads back as the same number: "0.1", "1e+16", "inf".
std::string FloatText(double value);

// int(text, base) of Python: spaces around, a sign, underscores between digits, and for bases 0, 2,
// 8 and 16 a prefix. Nothing where the text is no such number, or passes the bound.
std::optional<Int> ParseInt(TextView text, int base);
// float(text), with "inf", "infinity" and "nan".
std::optional<double> ParseFloat(TextView text);

// Nearest decimal of so many digits after the point (before it, where negative), ties to even.
double RoundFloat(double value, int digits);

}  // namespace hearth::jinja
