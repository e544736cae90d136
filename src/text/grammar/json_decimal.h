// Decimal numbers of any length, exactly, and the numbers of JSON between two of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/grammar/grammar.h"
#include "text/grammar/json_schema_parts.h"

namespace hearth {

// A number by its digits: `whole` without leading zeros (empty below 1), `fraction` without
// trailing ones.
struct Decimal {
  bool is_negative = false;  // never of zero
  std::string whole, fraction;

  bool is_zero() const { return whole.empty() && fraction.empty(); }
  bool is_whole() const { return fraction.empty(); }
  // Of a whole number of at most 18 digits.
  int64_t ToInteger() const;
  std::string ToText() const;
};

// The value that a number of JSON has: of a double, the shortest decimal that reads as it.
Decimal DecimalOf(const SchemaJson& number);
Decimal DecimalOf(int64_t number);
// Less than 0: a is smaller.
int Compare(const Decimal& a, const Decimal& b);
// Whether `multiple` is one of `unit`, which is not zero. False where digits are too many to say.
bool IsMultiple(const Decimal& multiple, const Decimal& unit);

struct NumberBound {
  Decimal value;
  bool is_excluded = false;
};
struct NumberBounds {
  std::optional<NumberBound> low, high;

  // Whether the number lies between them.
  bool Hold(const Decimal& number) const;
};

// Whole numbers of up to 15 digits between the bounds; nothing where there are none.
struct IntegerRange {
  static constexpr int64_t kLargest = 999'999'999'999'999;
  int64_t low = -kLargest, high = kLargest;
};
std::optional<IntegerRange> IntegersWithin(const NumberBounds& bounds);

// A rule for numbers between the bounds, without exponents, of which no double lies outside of them
// though it is rounded. The rule has no text where there are none.
Grammar::Symbol DecimalsWithin(GrammarBuilder& builder, const NumberBounds& bounds);
// A rule for whole numbers from low to high, both of at most 15 digits.
Grammar::Symbol IntegersBetween(GrammarBuilder& builder, int64_t low, int64_t high);
// Those of them that are multiples of `unit` > 0. Of many, those nearest to zero.
Grammar::Symbol MultiplesBetween(GrammarBuilder& builder, int64_t low, int64_t high, int64_t unit);

}  // namespace hearth
