#include "text/grammar/json_decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace hearth {
namespace {

using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

// Different numbers of at most this many digits read as different doubles.
constexpr size_t kExactDigits = 15;

Decimal Trimmed(Decimal decimal) {
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  const size_t last = decimal.fraction.find_last_not_of('0');
  decimal.fraction.erase(last == std::string::npos ? 0 : last + 1);
  if (decimal.is_zero()) decimal.is_negative = false;
  return decimal;
}

// Of digits with a point and an exponent.
Decimal DecimalOfText(std::string text) {
  Decimal decimal;
  if (!text.empty() && text[0] == '-') {
    decimal.is_negative = true;
    text.erase(0, 1);
  }
  long exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::stol(text.substr(e + 1));
    text.erase(e);
  }
  const size_t point = text.find('.');
  decimal.whole = text.substr(0, point);
  if (point != std::string::npos) decimal.fraction = text.substr(point + 1);
  std::string& from = exponent > 0 ? decimal.fraction : decimal.whole;
  for (; exponent > 0; --exponent) {
    decimal.whole += from.empty() ? '0' : from[0];
    if (!from.empty()) from.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    decimal.fraction.insert(0, 1, from.empty() ? '0' : from.back());
    if (!from.empty()) from.pop_back();
  }
  return Trimmed(std::move(decimal));
}

int CompareSizes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

// The other way round, so that numbers below zero can be said by those above.
std::optional<NumberBound> Negated(std::optional<NumberBound> bound) {
  if (bound && !bound->value.is_zero()) bound->value.is_negative = !bound->value.is_negative;
  return bound;
}

class NumberGrammar {
 public:
  explicit NumberGrammar(GrammarBuilder& builder) : builder_(builder) {}

  Symbol Digits(int64_t min, int64_t max) {
    return builder_.Repeat({builder_.Range('0', '9')}, min, max);
  }

  // Whole numbers from low to high, both at least 0.
  Symbol NaturalBetween(int64_t low, int64_t high) {
    const uint32_t rule = builder_.NewRule();
    while (low <= high) {
      const std::string first = std::to_string(low);
      const int64_t longest = std::stoll(std::string(first.size(), '9'));
      const int64_t last = std::min(high, longest);
      AddDigitRange(rule, first, std::to_string(last));
      low = last + 1;
    }
    return GrammarBuilder::Rule(rule);
  }

  // Numbers that are not below zero. low: never below zero.
  Symbol DecimalsBetween(const NumberBound& low, const std::optional<NumberBound>& high) {
    std::vector<Sequence> alternatives;
    if (low.value.whole.size() > kExactDigits) return builder_.Nothing();
    const int64_t floor = WholePart(low.value);
    if (!high || high->value.whole.size() > kExactDigits) {
      const size_t room = kExactDigits - low.value.whole.size();
      alternatives.push_back({NaturalBetween(floor, floor), Fraction(&low, nullptr, room)});
      if (floor < IntegerRange::kLargest) {
        alternatives.push_back({NaturalBetween(floor + 1, IntegerRange::kLargest),
                                Fraction(nullptr, nullptr, kExactDigits)});
      }
      return builder_.AnyOf(alternatives);
    }
    const int64_t top = WholePart(high->value);
    const size_t room = kExactDigits - high->value.whole.size();
    if (floor == top) {
      alternatives.push_back({NaturalBetween(floor, floor), Fraction(&low, &*high, room)});
    } else if (floor < top) {
      alternatives.push_back({NaturalBetween(floor, floor), Fraction(&low, nullptr, room)});
      if (floor + 1 < top) {
        alternatives.push_back(
            {NaturalBetween(floor + 1, top - 1), Fraction(nullptr, nullptr, room)});
      }
      alternatives.push_back({NaturalBetween(top, top), Fraction(nullptr, &*high, room)});
    }
    return builder_.AnyOf(alternatives);
  }

 private:
  static int64_t WholePart(const Decimal& decimal) {
    return decimal.whole.empty() ? 0 : std::stoll(decimal.whole);
  }

  // Texts of digits, all as long as `low` and `high`, between the two.
  void AddDigitRange(uint32_t rule, const std::string& low, const std::string& high) {
    if (low.empty()) return builder_.AddAlternative(rule, {});
    const std::string nines(low.size() - 1, '9');
    const std::string zeros(low.size() - 1, '0');
    const auto branch = [&](char first, char last, const std::string& from, const std::string& to) {
      const uint32_t rest = builder_.NewRule();
      AddDigitRange(rest, from, to);
      builder_.AddAlternative(rule, {Between(first, last), GrammarBuilder::Rule(rest)});
    };
    if (low.substr(1) == zeros && high.substr(1) == nines) {
      const auto rest = static_cast<int64_t>(zeros.size());
      return builder_.AddAlternative(rule, {Between(low[0], high[0]), Digits(rest, rest)});
    }
    if (low[0] == high[0]) return branch(low[0], low[0], low.substr(1), high.substr(1));
    branch(low[0], low[0], low.substr(1), nines);
    if (low[0] + 1 < high[0]) {
      branch(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1), zeros, nines);
    }
    branch(high[0], high[0], zeros, high.substr(1));
  }

  Symbol Between(char first, char last) {
    return builder_.Range(static_cast<unsigned char>(first), static_cast<unsigned char>(last));
  }

  // A point and up to `room` digits, or nothing, so that the fraction lies between those of the
  // bounds, as far as there are any.
  Symbol Fraction(const NumberBound* low, const NumberBound* high, size_t room) {
    return FractionFrom(low, high, 0, room);
  }

  // The digits of a bound from `at` on, and whether they are zero.
  static char DigitAt(const NumberBound& bound, size_t at) {
    return at < bound.value.fraction.size() ? bound.value.fraction[at] : '0';
  }
  static bool IsZeroFrom(const NumberBound& bound, size_t at) {
    return at >= bound.value.fraction.size();
  }

  // What follows `at` digits that are those of each bound that is given.
  Symbol FractionFrom(const NumberBound* low, const NumberBound* high, size_t at, size_t room) {
    std::vector<Sequence> alternatives;
    const bool may_end = (low == nullptr || (IsZeroFrom(*low, at) && !low->is_excluded)) &&
                         (high == nullptr || !IsZeroFrom(*high, at) || !high->is_excluded);
    if (may_end) alternatives.push_back({});
    const auto add = [&](char first, char last, Symbol rest) {
      if (first > last) return;
      Sequence sequence = {Between(first, last), rest};
      if (at == 0) sequence.insert(sequence.begin(), builder_.Byte('.'));
      alternatives.push_back(std::move(sequence));
    };
    if (at < room) {
      if (low == nullptr && high == nullptr) {
        add('0', '9', Digits(0, static_cast<int64_t>(room - at - 1)));
      } else {
        AddBoundDigits(low, high, at, room, add);
      }
    }
    return builder_.AnyOf(alternatives);
  }

  template <typename AddFn>
  void AddBoundDigits(const NumberBound* low, const NumberBound* high, size_t at, size_t room,
                      const AddFn& add) {
    const char least = low != nullptr ? DigitAt(*low, at) : '0';
    const char most = high != nullptr ? DigitAt(*high, at) : '9';
    if (least > most) return;
    const auto rest = [&](bool with_low, bool with_high) {
      return FractionFrom(with_low ? low : nullptr, with_high ? high : nullptr, at + 1, room);
    };
    const bool has_low = low != nullptr, has_high = high != nullptr;
    if (has_low && has_high && least == most) return add(least, most, rest(true, true));
    if (has_low) add(least, least, rest(true, false));
    const char first = static_cast<char>(least + (has_low ? 1 : 0));
    const char last = static_cast<char>(most - (has_high ? 1 : 0));
    if (first <= last) add(first, last, rest(false, false));
    if (has_high) add(most, most, rest(false, true));
  }

  GrammarBuilder& builder_;
};

}  // namespace

int64_t Decimal::ToInteger() const {
  const int64_t size = whole.empty() ? 0 : std::stoll(whole);
  return is_negative ? -size : size;
}

std::string Decimal::ToText() const {
  return std::string(is_negative ? "-" : "") + (whole.empty() ? "0" : whole) +
         (fraction.empty() ? "" : "." + fraction);
}

Decimal DecimalOf(const SchemaJson& number) {
  if (number.is_number_unsigned()) return DecimalOfText(std::to_string(number.get<uint64_t>()));
  if (number.is_number_integer()) return DecimalOf(number.get<int64_t>());
  return DecimalOfText(fmt::format("{}", number.get<double>()));
}

Decimal DecimalOf(int64_t number) { return DecimalOfText(std::to_string(number)); }

int Compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  return a.is_negative ? CompareSizes(b, a) : CompareSizes(a, b);
}

bool IsMultiple(const Decimal& multiple, const Decimal& unit) {
  const size_t shift = std::max(multiple.fraction.size(), unit.fraction.size());
  const auto scaled = [&](const Decimal& decimal) {
    return decimal.whole + decimal.fraction + std::string(shift - decimal.fraction.size(), '0');
  };
  constexpr size_t kMostDigits = 18;
  const std::string a = scaled(multiple), b = scaled(unit);
  if (a.size() > kMostDigits || b.size() > kMostDigits) return false;
  const int64_t divisor = b.empty() ? 0 : std::stoll(b);
  return divisor != 0 && (a.empty() ? 0 : std::stoll(a)) % divisor == 0;
}

bool NumberBounds::Hold(const Decimal& number) const {
  if (low) {
    const int order = Compare(number, low->value);
    if (order < 0 || (order == 0 && low->is_excluded)) return false;
  }
  if (high) {
    const int order = Compare(number, high->value);
    if (order > 0 || (order == 0 && high->is_excluded)) return false;
  }
  return true;
}

std::optional<IntegerRange> IntegersWithin(const NumberBounds& bounds) {
  IntegerRange range;
  // The whole number next to a bound, on its side.
  const auto next_to = [](const NumberBound& bound, bool above) {
    const Decimal& value = bound.value;
    const int64_t whole = Decimal{value.is_negative, value.whole, ""}.ToInteger();
    if (value.is_whole()) return whole + (!bound.is_excluded ? 0 : above ? 1 : -1);
    if (above) return value.is_negative ? whole : whole + 1;
    return value.is_negative ? whole - 1 : whole;
  };
  const auto is_far = [](const NumberBound& bound) {
    return bound.value.whole.size() > kExactDigits;
  };
  if (bounds.low) {
    if (!is_far(*bounds.low)) {
      range.low = std::max(range.low, next_to(*bounds.low, true));
    } else if (!bounds.low->value.is_negative) {
      return std::nullopt;
    }
  }
  if (bounds.high) {
    if (!is_far(*bounds.high)) {
      range.high = std::min(range.high, next_to(*bounds.high, false));
    } else if (bounds.high->value.is_negative) {
      return std::nullopt;
    }
  }
  if (range.low > range.high) return std::nullopt;
  return range;
}

Symbol DecimalsWithin(GrammarBuilder& builder, const NumberBounds& bounds) {
  NumberGrammar grammar(builder);
  const NumberBound zero{}, above_zero{{}, true};
  std::vector<Sequence> signs;
  if (!bounds.high || !bounds.high->value.is_negative) {
    const bool is_above = bounds.low && !bounds.low->value.is_negative;
    signs.push_back({grammar.DecimalsBetween(is_above ? *bounds.low : zero, bounds.high)});
  }
  if (!bounds.low || bounds.low->value.is_negative) {
    const auto low = Negated(bounds.high), high = Negated(bounds.low);
    const bool is_above = low && !low->value.is_negative && !low->value.is_zero();
    signs.push_back(
        {builder.Byte('-'), grammar.DecimalsBetween(is_above ? *low : above_zero, high)});
  }
  return builder.AnyOf(signs);
}

Symbol IntegersBetween(GrammarBuilder& builder, int64_t low, int64_t high) {
  NumberGrammar grammar(builder);
  std::vector<Sequence> signs;
  if (high >= 0) signs.push_back({grammar.NaturalBetween(std::max<int64_t>(low, 0), high)});
  if (low < 0) {
    signs.push_back(
        {builder.Byte('-'), grammar.NaturalBetween(high < 0 ? -high : int64_t{1}, -low)});
  }
  return builder.AnyOf(signs);
}

Symbol MultiplesBetween(GrammarBuilder& builder, int64_t low, int64_t high, int64_t unit) {
  constexpr int64_t kMost = 1000;
  // Division rounds towards zero.
  int64_t first = low / unit + (low > 0 && low % unit != 0 ? 1 : 0);
  int64_t last = high / unit - (high < 0 && high % unit != 0 ? 1 : 0);
  if (first >= 0) {
    last = std::min(last, first + kMost);
  } else if (last <= 0) {
    first = std::max(first, last - kMost);
  } else {
    first = std::max(first, -kMost / 2);
    last = std::min(last, kMost);
  }
  std::vector<std::string> texts;
  for (int64_t i = first; i <= last; ++i) texts.push_back(std::to_string(i * unit));
  return builder.OneOf(std::move(texts));
}

}  // namespace hearth
