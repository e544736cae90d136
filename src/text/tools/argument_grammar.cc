#include "text/tools/argument_grammar.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/json_schema_parts.h"

namespace hearth {
namespace {

using Json = SchemaJson;
constexpr uint8_t kScalars = kNullKind | kBooleanKind | kIntegerKind | kFractionKind;
constexpr unsigned char kControlByte = 0xFF;  // that ControlTokenBytes begins with

const Json& Resolved(const Json& root, const Json& schema) {
  const Json* found = &schema;
  constexpr int kMostSteps = 16;
  for (int i = 0; i < kMostSteps && found->is_object() && found->contains("$ref"); ++i) {
    found = &ReferencedSchema(root, *found);
  }
  return *found;
}

// Whether it says of values nothing but their types.
bool SaysOnlyTypes(const Json& root, const Json& schema, int depth = 0) {
  constexpr int kMaxDepth = 3;
  const Json& said = Resolved(root, schema);
  if (!said.is_object()) return said == Json(true);
  for (const auto& [name, value] : said.items()) {
    if (name == "anyOf" && value.is_array() && depth < kMaxDepth) {
      for (const Json& one : value) {
        if (!SaysOnlyTypes(root, one, depth + 1)) return false;
      }
    } else if (name != "type" && IsAssertion(name)) {
      return false;
    }
  }
  return true;
}

// The texts that an "enum" or "const" allows; none where there is neither.
std::vector<std::string> AllowedTexts(const Json& schema) {
  std::vector<std::string> texts;
  if (!schema.is_object()) return texts;
  const Json list = schema.contains("const")  ? Json::array({schema["const"]})
                    : schema.contains("enum") ? schema["enum"]
                                              : Json::array();
  for (const Json& text : list) {
    if (text.is_string()) texts.push_back(text);
  }
  return texts;
}

// Names must end where their marks begin.
void CheckNames(const ToolParameters& parameters, std::string_view others) {
  for (const ToolParameter& parameter : parameters.all) {
    const bool is_plain = !parameter.name.empty() &&
                          std::all_of(parameter.name.begin(), parameter.name.end(), [&](char c) {
                            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                   (c >= '0' && c <= '9') ||
                                   others.find(c) != std::string_view::npos;
                          });
    if (is_plain) continue;
    UnsupportedSchema("this model cannot write an argument '" + Printable(parameter.name) + "'");
  }
}

}  // namespace

void ArgumentGrammar::Append(Sequence& sequence, std::string_view text) {
  const Sequence literal = builder_.Literal(text);
  sequence.insert(sequence.end(), literal.begin(), literal.end());
}

// Text up to and with the mark, which is nowhere before its end: a rule for every length of the
// beginning of the mark that the text so far ends with.
Grammar::Symbol ArgumentGrammar::TextUntil(std::string_view mark) {
  const bool is_control = static_cast<unsigned char>(mark[0]) == kControlByte;
  std::vector<uint32_t> rules;
  for (size_t i = 0; i < mark.size(); ++i) rules.push_back(builder_.NewRule());
  for (size_t i = 0; i < mark.size(); ++i) {
    std::map<size_t, ByteSet> next;  // where each byte leads
    for (size_t byte = 0; byte < 256; ++byte) {
      const std::string text = std::string(mark.substr(0, i)) + static_cast<char>(byte);
      size_t longest = text.size();
      while (text.compare(text.size() - longest, longest, mark, 0, longest) != 0) --longest;
      // No other control token.
      const bool leaves_control = is_control && i > 0 && longest != i + 1;
      if (leaves_control || (byte == kControlByte && longest == 0)) continue;
      next[longest].set(byte);
    }
    for (const auto& [length, set] : next) {
      Sequence sequence = {builder_.Bytes(set)};
      if (length < mark.size()) sequence.push_back(GrammarBuilder::Rule(rules[length]));
      builder_.AddAlternative(rules[i], sequence);
    }
  }
  return GrammarBuilder::Rule(rules[0]);
}

// A value and the mark after it.
Grammar::Symbol ArgumentGrammar::TaggedValue(const ToolParameter& parameter, const Json& root,
                                             Symbol json) {
  const Json& schema = Resolved(root, *parameter.schema);
  std::vector<Sequence> values;
  if ((parameter.kinds & kStringKind) == 0) {
    values.push_back({json});
  } else if (SaysOnlyTypes(root, schema) &&
             (parameter.kinds == kAllKinds || (parameter.kinds & ~(kStringKind | kScalars)) == 0)) {
    return TextUntil(marks_.value_end);
  } else if (parameter.kinds == kStringKind) {
    for (const std::string& text : AllowedTexts(schema)) {
      if (text.find(syntax_.value_end) == std::string::npos)
        values.push_back(builder_.Literal(text));
    }
  }
  if (values.empty()) {
    UnsupportedSchema("this model writes '" + Printable(parameter.name) +
                      "' without quotes: of texts only 'type', 'enum' and 'const' can be kept to");
  }
  for (Sequence& value : values) {
    if (syntax_.values_on_lines) value.push_back(builder_.Byte('\n'));
    Append(value, marks_.value_end);
  }
  return builder_.AnyOf(values);
}

GrammarBuilder::Sequence ArgumentGrammar::Tagged(const Sequence& key, Symbol value_and_end) {
  Sequence argument = {parts_.space()};
  Append(argument, marks_.key_begin);
  argument.insert(argument.end(), key.begin(), key.end());
  Append(argument, marks_.key_end);
  if (!marks_.value_begin.empty()) {
    argument.push_back(parts_.space());
    Append(argument, marks_.value_begin);
  }
  if (syntax_.values_on_lines) argument.push_back(builder_.Byte('\n'));
  argument.push_back(value_and_end);
  return argument;
}

// Members with commas between, of which some may be left out: from the last one to the first.
Grammar::Symbol ArgumentGrammar::InOrder(const std::vector<std::pair<Sequence, bool>>& members) {
  Symbol after_some = builder_.AnyOf({{}});
  Symbol after_none = after_some;
  for (size_t i = members.size(); i-- > 0;) {
    const auto& [member, is_required] = members[i];
    Sequence first = member;
    first.push_back(after_some);
    Sequence next = {builder_.Byte(','), parts_.space()};
    next.insert(next.end(), first.begin(), first.end());
    std::vector<Sequence> some = {next}, none = {first};
    if (!is_required) {
      some.push_back({after_some});
      none.push_back({after_none});
    }
    after_some = builder_.AnyOf(some);
    after_none = builder_.AnyOf(none);
  }
  return after_none;
}

Grammar::Symbol ArgumentGrammar::Of(const ToolFunction& function) {
  const std::string schema = ParametersOf(function);
  {
    // What no grammar can say is refused before anything is made of it.
    GrammarBuilder builder(builder_.memory());
    JsonGrammarParts parts(builder);
    AddJsonSchema(builder, parts, schema, JsonKind::kObject);
  }
  const ToolParameters parameters = ReadToolParameters(schema);
  const Json& root = *parameters.root;
  for (const auto& [name, value] : root.items()) {
    static const std::set<std::string> known = {"type", "properties", "required",
                                                "additionalProperties"};
    if (known.count(name) == 0 && IsAssertion(name)) {
      UnsupportedSchema("'" + Printable(name) + "' beside arguments that are written one by one");
    }
  }
  if (SaysNothing(root)) return Any();
  const std::set<std::string> required = RequiredNames(root);
  std::vector<const Json*> schemas;
  for (const ToolParameter& parameter : parameters.all) schemas.push_back(parameter.schema);
  const std::vector<Symbol> values = AddJsonSchemaParts(builder_, parts_, root, schemas);
  const bool is_tagged = syntax_.form == ToolSyntax::Form::kTagged;
  CheckNames(parameters, is_tagged ? "_-." : "_");
  std::vector<std::pair<Sequence, bool>> members;
  for (size_t i = 0; i < values.size(); ++i) {
    const ToolParameter& parameter = parameters.all[i];
    Sequence member = builder_.Literal(parameter.name);
    if (is_tagged) {
      member = Tagged(member, TaggedValue(parameter, root, values[i]));
    } else {
      member.push_back(builder_.Byte('='));
      member.push_back(values[i]);
    }
    members.emplace_back(std::move(member), required.count(parameter.name) > 0);
  }
  if (!is_tagged) return InOrder(members);
  Sequence all;
  for (const auto& [member, is_required] : members) {
    all.push_back(is_required ? builder_.AnyOf({member}) : builder_.AnyOf({member, {}}));
  }
  return builder_.AnyOf({all});
}

Grammar::Symbol ArgumentGrammar::Key() {
  ByteSet letters;
  for (const char* c = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"; *c != '\0'; ++c) {
    letters.set(static_cast<uint8_t>(*c));
  }
  ByteSet more = letters;
  for (char c = '0'; c <= '9'; ++c) more.set(static_cast<uint8_t>(c));
  return builder_.AnyOf(
      {{builder_.Bytes(letters), builder_.Repeat({builder_.Bytes(more)}, 0, -1)}});
}

Grammar::Symbol ArgumentGrammar::Any() {
  if (syntax_.form == ToolSyntax::Form::kTagged) {
    return builder_.Repeat(Tagged({Key()}, TextUntil(marks_.value_end)), 0, -1);
  }
  const Sequence one = {Key(), builder_.Byte('='), parts_.value()};
  Sequence next = {builder_.Byte(','), parts_.space()};
  next.insert(next.end(), one.begin(), one.end());
  Sequence some = one;
  some.push_back(builder_.Repeat(next, 0, -1));
  return builder_.AnyOf({some, {}});
}

}  // namespace hearth
