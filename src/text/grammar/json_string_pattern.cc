#include "text/grammar/json_string_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/json_schema_parts.h"
#include "text/grammar/json_string_language.h"
#include "text/grammar/pattern_parser.h"

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
        if (node.ranges.empty()) UnsupportedSchema("'pattern' with a class of no character");
        return JsonCharacters(builder_, node.ranges);
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

  GrammarBuilder& builder_;
  JsonGrammarParts& parts_;
};

constexpr char kDate[] =
    R"([12]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))";
constexpr char kTime[] =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr char kDomain[] = R"([A-Za-z0-9]{1,30}(-[A-Za-z0-9]{1,30})?)";
constexpr char kOctet[] = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
constexpr char kLowerDomain[] = R"([a-z0-9]{1,30})";

std::string EmailPattern() {
  return fmt::format(
      R"([A-Za-z0-9_+-]{{1,32}}(\.[A-Za-z0-9_+-]{{1,31}})?@{0}(\.{0}){{0,2}}\.[A-Za-z]{{2,24}})",
      kDomain);
}

// What may follow the host: a path, a query and a fragment.
std::string PathPattern() {
  constexpr char kText[] = R"(([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2}))";
  return fmt::format(R"((/{0}{{0,60}}){{0,8}}(\?{0}{{0,80}})?(#{0}{{0,40}})?)", kText);
}

std::string UriPattern() {
  return fmt::format(
      R"((https?|ftp|wss?)://{0}(\.{0}){{0,3}}(:[1-9]\d{{0,3}})?{1}|mailto:{2}|urn:[a-z0-9]{{2,20}}:[A-Za-z0-9._:-]{{1,60}})",
      kDomain, PathPattern(), EmailPattern());
}

std::string DurationPattern() {
  constexpr char kOfTime[] = R"(T(\d{1,9}H(\d{1,9}M(\d{1,9}S)?)?|\d{1,9}M(\d{1,9}S)?|\d{1,9}S))";
  return fmt::format(
      R"(P((\d{{1,9}}Y(\d{{1,9}}M(\d{{1,9}}D)?)?|\d{{1,9}}M(\d{{1,9}}D)?|\d{{1,9}}D)({0})?|{0}|\d{{1,9}}W))",
      kOfTime);
}

std::string Unanchored(std::string_view format) {
  constexpr char kPointer[] = R"((/[A-Za-z0-9_.-]{0,40}){0,12})";
  if (format == "date") return kDate;
  if (format == "time") return kTime;
  if (format == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (format == "duration") return DurationPattern();
  if (format == "hostname" || format == "host-name") {
    return fmt::format(R"({0}(\.{0}){{0,3}})", kDomain);
  }
  if (format == "idn-hostname") return fmt::format(R"({0}(\.{0}){{0,3}})", kLowerDomain);
  if (format == "email" || format == "idn-email") return EmailPattern();
  if (format == "ipv4" || format == "ip-address") return fmt::format(R"({0}(\.{0}){{3}})", kOctet);
  if (format == "ipv6") return R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7})";
  if (format == "uuid") return R"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})";
  if (format == "uri" || format == "iri" || format == "uri-template") return UriPattern();
  if (format == "uri-reference" || format == "iri-reference") {
    return UriPattern() + "|/[A-Za-z0-9._~-]{1,60}" + PathPattern();
  }
  if (format == "json-pointer") return kPointer;
  if (format == "relative-json-pointer")
    return fmt::format(R"((0|[1-9]\d{{0,2}})(#|{}))", kPointer);
  if (format == "regex") return R"([A-Za-z0-9 _-]{0,100})";
  if (format == "color") return R"(#[0-9a-f]{6})";
  return "";
}

int64_t Sum(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : a + b; }

PatternLengths LengthsOf(const PatternNode& node) {
  PatternLengths lengths{0, 0};
  switch (node.kind) {
    case PatternNode::Kind::kCharacters:
      return {1, 1};
    case PatternNode::Kind::kSequence:
      for (const PatternNode& child : node.children) {
        const PatternLengths more = LengthsOf(child);
        lengths = {lengths.least + more.least, Sum(lengths.most, more.most)};
      }
      return lengths;
    case PatternNode::Kind::kRepeat: {
      const PatternLengths one = LengthsOf(node.children[0]);
      const bool has_end = node.max >= 0 && one.most >= 0;
      return {one.least * node.min, has_end ? one.most * node.max : -1};
    }
    case PatternNode::Kind::kAlternatives:
      break;
  }
  for (size_t i = 0; i < node.children.size(); ++i) {
    const PatternLengths one = LengthsOf(node.children[i]);
    lengths.least = i == 0 ? one.least : std::min(lengths.least, one.least);
    lengths.most = lengths.most < 0 || one.most < 0 ? -1 : std::max(lengths.most, one.most);
  }
  return lengths;
}

}  // namespace

Symbol StringOfPattern(GrammarBuilder& builder, JsonGrammarParts& parts, std::string_view pattern) {
  const std::vector<PatternBranch> branches = ParsePattern(pattern);
  const bool has_conditions =
      std::any_of(branches.begin(), branches.end(),
                  [](const PatternBranch& branch) { return !branch.conditions.empty(); });
  if (!has_conditions) return PatternCompiler(builder, parts).Run(branches);
  StringLanguage language;
  language.Require(branches);
  return language.Compile(builder);
}

PatternLengths LengthsOfPattern(std::string_view pattern) {
  PatternNode all;
  all.kind = PatternNode::Kind::kAlternatives;
  bool has_end = true;
  for (PatternBranch& branch : ParsePattern(pattern)) {
    has_end &= branch.at_start && branch.at_end;
    all.children.emplace_back().children = std::move(branch.items);
  }
  PatternLengths lengths = LengthsOf(all);
  if (!has_end) lengths.most = -1;
  return lengths;
}

std::string PatternOfFormat(std::string_view format) {
  const std::string pattern = Unanchored(format);
  return pattern.empty() ? "" : "^(" + pattern + ")$";
}

}  // namespace hearth
