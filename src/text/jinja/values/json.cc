// The filter tojson: what json.dumps writes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonOptions& options) : runtime_(runtime), options_(options) {}

  Text Run(const Value& value) {
    Write(value, 0);
    return std::move(out_);
  }

 private:
  void Frame(std::string_view ascii) { out_ += DecodeText(ascii, false); }

  void NewLine(int level) {
    if (!options_.indent) return;
    Frame("\n");
    for (int i = 0; i < level; ++i) out_ += *options_.indent;
  }

  void WriteString(const Text& text) {
    runtime_.Spend(text.size() / 4);
    Frame("\"");
    for (const char32_t c : text) WriteCharacter(c);
    Frame("\"");
  }

  void Escape(std::string_view ascii, char32_t like) {
    for (const char letter : ascii) out_ += MarkedLike(static_cast<unsigned char>(letter), like);
  }

  void WriteCharacter(char32_t marked) {
    const char32_t c = Plain(marked);
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t known = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      Escape({"\\", 1}, marked);
      Escape(kLetters.substr(known, 1), marked);
    } else if (c < 0x20 || (options_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
      Escape(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)), marked);
    } else if (options_.ensure_ascii && c >= 0x10000) {
      const auto rest = static_cast<uint32_t>(c - 0x10000);
      Escape(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)),
             marked);
    } else {
      out_ += marked;
    }
  }

  static std::string NumberText(const Value& value) {
    if (!value.Is(Kind::kFloat)) return IntText(value.integer());
    if (std::isnan(value.real())) return "NaN";
    if (std::isinf(value.real())) return value.real() > 0 ? "Infinity" : "-Infinity";
    return FloatText(value.real());
  }

  static std::optional<std::string> ScalarText(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.boolean() ? "true" : "false";
      case Kind::kInt:
      case Kind::kFloat:
        return NumberText(value);
      default:
        return std::nullopt;
    }
  }

  void WriteList(const Values& items, int level) {
    if (items.empty()) return Frame("[]");
    Frame("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    Frame("]");
  }

  void WriteKey(const Value& key) {
    if (key.Is(Kind::kString)) return WriteString(key.text());
    const auto text = ScalarText(key);
    if (!text) throw Failure(fmt::format("tojson: a {} cannot be a key of JSON", TypeName(key)));
    Frame("\"" + *text + "\"");
  }

  void WriteDict(const DictObject& dict, int level) {
    if (dict.items.empty()) return Frame("{}");
    KeyedValues items;
    for (const auto& [key, value] : dict.items) items.push_back({key, value});
    if (options_.sort_keys) SortByKey(runtime_, items, false);
    Frame("{");
    bool first = true;
    for (const KeyedValue& item : items) {
      if (!first) out_ += options_.item_separator;
      first = false;
      NewLine(level + 1);
      WriteKey(item.key);
      out_ += options_.key_separator;
      Write(item.value, level + 1);
    }
    NewLine(level);
    Frame("}");
  }

  void Write(const Value& value, int level) {
    const DepthScope depth(runtime_);
    runtime_.Spend(1);
    if (value.Is(Kind::kString)) return WriteString(value.text());
    if (IsSequence(value.kind())) return WriteList(value.items(), level);
    if (value.Is(Kind::kDict)) return WriteDict(value.dict(), level);
    const auto text = ScalarText(value);
    if (!text) throw Failure(fmt::format("tojson cannot write a {}", TypeName(value)));
    Frame(*text);
  }

  Runtime& runtime_;
  const JsonOptions& options_;
  Text out_;
};

}  // namespace

Text ToJson(Runtime& runtime, const Value& value, const JsonOptions& options) {
  return JsonWriter(runtime, options).Run(value);
}

}  // namespace hearth::jinja
