#include "text/json_string_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/json_schema_parts.h"
#include "text/pattern_parser.h"

namespace hearth {
namespace {

using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;

class PatternCompiler {
 public:
  PatternCompiler(GrammarBuilder& builder, JsonGrammarParts& parts)
      : builder_(builder), parts_(parts) {}

  // A string with quotes; the pattern is found anywhere in it where nothing anchors it.
  Symbol Run(const std::vector<PatternBranch>& branches) {
    const Symbol quote = builder_.Byte('"');
    const Symbol anything = builder_.Repeat({parts_.character()}, 0, -1);
    std::vector<Sequence> alternatives;
    for (const PatternBranch& branch : branches) {
      Sequence sequence = {quote};
      if (!branch.at_start) sequence.push_back(anything);
      for (const PatternNode& item : branch.items) sequence.push_back(Compile(item));
      if (!branch.at_end) sequence.push_back(anything);
      sequence.push_back(quote);
      alternatives.push_back(std::move(sequence));
    }
    return builder_.AnyOf(alternatives);
  }

 private:
  Symbol Compile(const PatternNode& node) {
    switch (node.kind) {
      case PatternNode::Kind::kCharacters:
        return Characters(node.ranges);
      case PatternNode::Kind::kRepeat:
        return builder_.Repeat({Compile(node.children[0])}, node.min, node.max);
      case PatternNode::Kind::kSequence: {
        Sequence sequence;
        for (const PatternNode& child : node.children) sequence.push_back(Compile(child));
        return builder_.AnyOf({sequence});
      }
      case PatternNode::Kind::kAlternatives:
        break;
    }
    std::vector<Sequence> alternatives;
    for (const PatternNode& child : node.children) alternatives.push_back({Compile(child)});
    return builder_.AnyOf(alternatives);
  }

  // Any of these characters, as it stands in JSON.
  Symbol Characters(const std::vector<CodePointRange>& ranges) {
    std::vector<Sequence> alternatives;
    ByteSet plain;
    for (const auto& [first, last] : ranges) {
      for (uint32_t c = first; c <= std::min<uint32_t>(last, 0x7F); ++c) {
        if (c < 0x20 || c == '"' || c == '\\') {
          alternatives.push_back(builder_.Literal(Escaped(c)));
        } else {
          plain.set(c);
        }
      }
      if (last > 0x7F) AddUtf8(std::max<uint32_t>(first, 0x80), last, alternatives);
    }
    if (plain.any()) alternatives.push_back({builder_.Bytes(plain)});
    if (alternatives.empty()) UnsupportedSchema("'pattern' with a class of no character");
    return builder_.AnyOf(alternatives);
  }

  static std::string Escaped(uint32_t c) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    const size_t known = kShort.find(static_cast<char>(c));
    if (known != std::string_view::npos) return {'\\', kLetters[known]};
    return fmt::format("\\u{:04x}", c);
  }

  static std::string Utf8(uint32_t c) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
    if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
    if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
    return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
  }

  // Characters past ASCII, in ranges whose bytes vary independently of each other.
  void AddUtf8(uint32_t first, uint32_t last, std::vector<Sequence>& alternatives) {
    if (first > last) return;
    const auto split = [&](uint32_t end_of_first) {
      AddUtf8(first, end_of_first, alternatives);
      AddUtf8(end_of_first + 1, last, alternatives);
    };
    // Where the length changes, and before, in and behind the surrogates, which are no characters.
    for (const uint32_t border : {0x7FFu, 0xD7FFu, 0xDFFFu, 0xFFFFu}) {
      if (first <= border && border < last) return split(border);
    }
    if (first >= 0xD800 && last <= 0xDFFF) return;
    for (const int bits : {6, 12, 18}) {
      const uint32_t low = (1u << bits) - 1;
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) return split(first | low);
      if ((last & low) != low) return split((last & ~low) - 1);
    }
    const std::string from = Utf8(first), to = Utf8(last);
    Sequence bytes;
    for (size_t i = 0; i < from.size(); ++i) {
      bytes.push_back(
          builder_.Range(static_cast<unsigned char>(from[i]), static_cast<unsigned char>(to[i])));
    }
    alternatives.push_back(std::move(bytes));
  }

  GrammarBuilder& builder_;
  JsonGrammarParts& parts_;
};

constexpr char kDate[] =
    R"([12]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))";
constexpr char kTime[] =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr char kDomain[] = R"([A-Za-z0-9]{1,30}(-[A-Za-z0-9]{1,30})?)";
constexpr char kOctet[] = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

std::string FormatPattern(std::string_view format) {
  if (format == "date") return kDate;
  if (format == "time") return kTime;
  if (format == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (format == "duration") {
    constexpr char kOfTime[] = R"(T(\d{1,9}H(\d{1,9}M(\d{1,9}S)?)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S))";
    return fmt::format(
        R"(P((\d{{1,9}}Y(\d{{1,9}}M(\d{{1,9}}D)?)?|\d{{1,9}}M(\d{{1,9}}D)?|\d{{1,9}}D)({0})?|{0}|\d{{1,9}}W))",
        kOfTime);
  }
  if (format == "hostname") return fmt::format(R"({0}(\.{0}){{0,3}})", kDomain);
  if (format == "email") {
    return fmt::format(
        R"([A-Za-z0-9_+-]{{1,32}}(\.[A-Za-z0-9_+-]{{1,31}})?@{0}(\.{0}){{0,2}}\.[A-Za-z]{{2,24}})",
        kDomain);
  }
  if (format == "ipv4") return fmt::format(R"({0}(\.{0}){{3}})", kOctet);
  if (format == "ipv6") return R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7})";
  if (format == "uuid") return R"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})";
  UnsupportedSchema("the format '" + Printable(format) + "'");
}

}  // namespace

Symbol StringOfPattern(GrammarBuilder& builder, JsonGrammarParts& parts, std::string_view pattern) {
  return PatternCompiler(builder, parts).Run(ParsePattern(pattern));
}

Symbol StringOfFormat(GrammarBuilder& builder, JsonGrammarParts& parts, std::string_view format) {
  return StringOfPattern(builder, parts, "^(" + FormatPattern(format) + ")$");
}

}  // namespace hearth
