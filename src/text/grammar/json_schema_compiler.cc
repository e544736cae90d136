#include "text/grammar/json_schema_compiler.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "text/grammar/json_string_pattern.h"

namespace hearth {
namespace {

using Json = SchemaJson;
using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

constexpr int kMaxDepth = 60;  // of schemas in schemas
constexpr uint8_t kNumberKindBits = kIntegerKind | kFractionKind;
constexpr size_t kMostNumberDigits = 15;
constexpr size_t kRuleOfSetBytes = 112;

// A value as a grammar writes it: whole numbers without a point.
std::string LiteralText(const Json& value) {
  if (value.is_number_float() && KindOfValue(value) == kIntegerKind) {
    const Decimal number = DecimalOf(value);
    if (number.whole.size() <= kMostNumberDigits) return number.ToText();
  }
  return JsonText(value);
}

// Whether multiples of this part of 1 are so for validators that divide doubles too: where its
// double is within a quarter of the distance to the next one, quotients are rounded to whole
// numbers.
bool DividesAsDouble(const Decimal& unit) {
  const std::string text = unit.ToText();
  const long double exact = std::strtold(text.c_str(), nullptr);
  const auto rounded = static_cast<long double>(std::strtod(text.c_str(), nullptr));
  constexpr long double kMostError = 0x1.01p-54L;
  return std::abs(rounded - exact) <= kMostError * exact;
}

bool IsBounded(const SchemaShape::Strings& strings) { return strings.min > 0 || strings.max >= 0; }

}  // namespace

Symbol SchemaCompiler::Inside(SchemaSet set) {
  std::set<uint32_t> open;
  open.swap(open_);
  const Symbol symbol = Compile(std::move(set));
  open_.swap(open);
  return symbol;
}

Symbol SchemaCompiler::Compile(SchemaSet set) {
  SchemaSet targets;
  for (const Json* schema : set) AddSchema(targets, reader_.Target(schema));
  if (targets.empty()) return builder_.AnyOf({{parts_.value()}});
  std::sort(targets.begin(), targets.end());
  const auto known = rules_.find(targets);
  if (known != rules_.end()) {
    if (open_.count(known->second) == 0) return GrammarBuilder::Rule(known->second);
    reader_.LookAt(targets[0]);
    InvalidSchema("a schema begins with itself");
  }
  if (++depth_ > kMaxDepth) UnsupportedSchema("it is nested too deeply");
  builder_.CountBytes(kRuleOfSetBytes);
  const uint32_t rule = builder_.NewRule();
  rules_.emplace(targets, rule);
  open_.insert(rule);
  const Json* const list = targets.size() == 1 ? reader_.PlainAlternatives(*targets[0]) : nullptr;
  if (list != nullptr) {
    for (const Json& one : *list) builder_.AddAlternative(rule, {Compile({&one})});
  } else {
    for (const SchemaShape& shape : reader_.Shapes(targets)) {
      reader_.LookAt(targets[0]);
      AddShape(rule, shape);
    }
  }
  open_.erase(rule);
  --depth_;
  return GrammarBuilder::Rule(rule);
}

void SchemaCompiler::AddShape(uint32_t rule, const SchemaShape& shape) {
  if (shape.values) return builder_.AddAlternative(rule, {Values(shape)});
  uint8_t kinds = shape.kinds;
  // A schema without a type means those that its other names are about.
  if (kinds == kAllKinds && shape.hints != 0) kinds = shape.hints;
  // Fractions without whole numbers are left out where there is something else.
  if ((kinds & kIntegerKind) == 0 && kinds != kFractionKind) {
    kinds &= static_cast<uint8_t>(~kFractionKind);
  }
  const bool says_nothing =
      kinds == kAllKinds && shape.strings.formats.empty() && shape.forbidden.empty();
  if (says_nothing) return builder_.AddAlternative(rule, {parts_.value()});
  const auto add = [&](Symbol symbol) { builder_.AddAlternative(rule, {symbol}); };
  if ((kinds & kNullKind) != 0 && std::none_of(shape.forbidden.begin(), shape.forbidden.end(),
                                               [](const Json* no) { return no->is_null(); })) {
    builder_.AddAlternative(rule, builder_.Literal("null"));
  }
  if ((kinds & kBooleanKind) != 0) add(Booleans(shape));
  if ((kinds & kNumberKindBits) != 0) {
    SchemaShape numbers = shape;
    numbers.kinds = kinds;
    add(Numbers(numbers));
  }
  if ((kinds & kStringKind) != 0) add(Strings(shape));
  if ((kinds & kArrayKind) != 0) add(Array(shape));
  if ((kinds & kObjectKind) != 0) add(Object(shape));
}

Symbol SchemaCompiler::Values(const SchemaShape& shape) {
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const Json* value : *shape.values) {
    if (!seen.insert(EqualityText(*value)).second || !reader_.judge().Accepts(shape, *value))
      continue;
    texts.push_back(LiteralText(*value));
    builder_.CountBytes(texts.back().size() * 2);
  }
  return builder_.OneOf(std::move(texts));
}

// Values that must not be, of kinds of which none can be left out.
void SchemaCompiler::CheckForbidden(const SchemaShape& shape, uint8_t kinds) const {
  for (const Json* no : shape.forbidden) {
    if ((KindOfValue(*no) & kinds) == 0) continue;
    UnsupportedSchema("'not' is supported for values that are texts, null, true or false only");
  }
}

Symbol SchemaCompiler::Booleans(const SchemaShape& shape) {
  std::vector<Sequence> words;
  for (const bool word : {true, false}) {
    const auto is_same = [&](const Json* no) {
      return no->is_boolean() && no->get<bool>() == word;
    };
    if (std::any_of(shape.forbidden.begin(), shape.forbidden.end(), is_same)) continue;
    words.push_back(builder_.Literal(word ? "true" : "false"));
  }
  return builder_.AnyOf(words);
}

Symbol SchemaCompiler::Numbers(const SchemaShape& shape) {
  CheckForbidden(shape, shape.kinds & kNumberKindBits);
  const NumberBounds& bounds = shape.numbers;
  const bool is_low = bounds.high && bounds.high->value.is_negative &&
                      bounds.high->value.whole.size() > kMostNumberDigits;
  const bool is_high = bounds.low && !bounds.low->value.is_negative &&
                       bounds.low->value.whole.size() > kMostNumberDigits;
  if (is_low || is_high) {
    UnsupportedSchema(std::string(is_low ? "'maximum'" : "'minimum'") +
                      " leaves only numbers of more than 15 digits");
  }
  if ((shape.kinds & kIntegerKind) == 0) {
    UnsupportedSchema("numbers that are no integers are not supported: allow both");
  }
  if (!shape.units.empty()) return Multiples(shape);
  const bool has_bounds = bounds.low || bounds.high;
  if ((shape.kinds & kFractionKind) != 0) {
    return has_bounds ? DecimalsWithin(builder_, bounds) : parts_.number();
  }
  const auto range = IntegersWithin(bounds);
  if (!range) return builder_.Nothing();
  const bool is_whole =
      range->low == -IntegerRange::kLargest && range->high == IntegerRange::kLargest;
  return is_whole ? parts_.integer() : IntegersBetween(builder_, range->low, range->high);
}

// Whole numbers; with units of a fraction also those with a half or a quarter, which are exact in
// binary, so that no validator finds that they are no multiples.
Symbol SchemaCompiler::Multiples(const SchemaShape& shape) {
  constexpr int64_t kLargestUnit = 1'000'000'000;
  int64_t unit = 1;
  std::vector<Sequence> fractions = {{}};
  for (const Decimal& one : shape.units) {
    if (one.is_whole()) {
      if (one.whole.size() > 9) UnsupportedSchema("'multipleOf' is larger than 999999999");
      unit = std::lcm(unit, one.ToInteger());
      if (unit > kLargestUnit) UnsupportedSchema("'multipleOf' is larger than 999999999");
    } else if (!IsMultiple(DecimalOf(1), one) || !DividesAsDouble(one)) {
      UnsupportedSchema(
          "'multipleOf' must be a whole number, or a part of 1 that doubles hold well");
    }
  }
  const auto range = IntegersWithin(shape.numbers);
  if (!range) return builder_.Nothing();
  for (const char* digits : {"5", "25", "75"}) {
    const bool fits = std::all_of(shape.units.begin(), shape.units.end(), [&](const Decimal& one) {
      return IsMultiple(Decimal{false, "", digits}, one);
    });
    if (fits && (shape.kinds & kFractionKind) != 0) {
      fractions.push_back(builder_.Literal("." + std::string(digits)));
    }
  }
  // So that the quotient is exact too.
  const int64_t most = fractions.size() == 1 && unit == 1 ? 9'999'999'999 : IntegerRange::kLargest;
  const int64_t low = std::max(range->low, -most), high = std::min(range->high, most);
  if (low > high) return builder_.Nothing();
  std::vector<Sequence> numbers;
  if (unit > 1) {
    numbers.push_back({MultiplesBetween(builder_, low, high, unit)});
  } else {
    numbers.push_back({IntegersBetween(builder_, low, high)});
    const int64_t last = std::min(high, int64_t{9'999'999'999});
    if (fractions.size() > 1 && last > std::max<int64_t>(low, 0)) {
      numbers.push_back({IntegersBetween(builder_, std::max<int64_t>(low, 0), last - 1),
                         builder_.AnyOf(fractions)});
    }
  }
  return builder_.AnyOf(numbers);
}

void SchemaCompiler::AddStrings(const SchemaShape& shape, StringLanguage& language) const {
  language.Bound(shape.strings.min, shape.strings.max);
  for (const std::string& pattern : shape.strings.patterns) language.Require(pattern);
  for (const std::string& format : shape.strings.formats) {
    const std::string pattern = PatternOfFormat(format);
    if (!pattern.empty()) language.Require(pattern);
  }
  std::vector<std::string> texts;
  for (const Json* no : shape.forbidden) {
    if (no->is_string()) texts.push_back(no->get<std::string>());
  }
  if (!texts.empty()) language.ForbidTexts(texts);
}

Symbol SchemaCompiler::Strings(const SchemaShape& shape) {
  std::string key = std::to_string(shape.strings.min) + " " + std::to_string(shape.strings.max);
  for (const auto* list : {&shape.strings.patterns, &shape.strings.formats}) {
    key += '\n';
    for (const std::string& text : *list) key += text + '\0';
  }
  for (const Json* no : shape.forbidden) key += EqualityText(*no);
  const auto known = strings_.find(key);
  if (known != strings_.end()) return known->second;
  builder_.CountBytes(key.size() + kRuleOfSetBytes);
  return strings_.emplace(key, NewStrings(shape)).first->second;
}

Symbol SchemaCompiler::NewStrings(const SchemaShape& shape) {
  std::vector<std::string> patterns = shape.strings.patterns;
  for (const std::string& format : shape.strings.formats) {
    const std::string pattern = PatternOfFormat(format);
    if (!pattern.empty()) patterns.push_back(pattern);
  }
  const bool forbids = std::any_of(shape.forbidden.begin(), shape.forbidden.end(),
                                   [](const Json* no) { return no->is_string(); });
  bool is_bounded = IsBounded(shape.strings);
  if (patterns.empty() && !forbids) {
    return is_bounded ? parts_.string_of(shape.strings.min, shape.strings.max) : parts_.string();
  }
  if (patterns.size() == 1 && !forbids) {
    if (is_bounded) {
      const PatternLengths lengths = LengthsOfPattern(patterns[0]);
      is_bounded =
          lengths.least < shape.strings.min ||
          (shape.strings.max >= 0 && (lengths.most < 0 || lengths.most > shape.strings.max));
    }
    if (!is_bounded) return StringOfPattern(builder_, parts_, patterns[0]);
  }
  StringLanguage language;
  AddStrings(shape, language);
  return language.Compile(builder_);
}

}  // namespace hearth
