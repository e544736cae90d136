#include "text/jinja/values/repr.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"

namespace hearth::jinja {
namespace {

// A list, tuple or dict, while its items are written. By way of a namespace it may hold itself.
class WrittenScope {
 public:
  WrittenScope(Runtime& runtime, const Value& value) : written_(runtime.being_written) {
    is_inside_ = std::find(written_.begin(), written_.end(), value.identity()) != written_.end();
    written_.push_back(value.identity());
  }
  ~WrittenScope() { written_.pop_back(); }
  WrittenScope(const WrittenScope&) = delete;
  WrittenScope& operator=(const WrittenScope&) = delete;

  bool is_inside() const { return is_inside_; }  // of itself

 private:
  std::vector<const void*>& written_;
  bool is_inside_ = false;
};

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  Text Run(const Value& value) {
    Write(value);
    return std::move(out_);
  }

 private:
  // What is around the items; see repr.h on its mark.
  void Frame(std::string_view ascii) { out_ += DecodeText(ascii, false); }
  void Plainly(std::string_view ascii) { out_ += Own(ascii); }

  void WriteItems(const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Frame(", ");
      Write(items[i]);
    }
  }

  void WriteTuple(const Values& items) {
    Frame("(");
    WriteItems(items);
    Frame(items.size() == 1 ? ",)" : ")");
  }

  void WriteDict(const DictObject& dict) {
    Frame("{");
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) Frame(", ");
      Write(dict.items[i].first);
      Frame(": ");
      Write(dict.items[i].second);
    }
    Frame("}");
  }

  void WriteContainer(const Value& value) {
    const WrittenScope scope(runtime_, value);
    if (value.Is(Kind::kDict)) {
      return scope.is_inside() ? Frame("{...}") : WriteDict(value.dict());
    }
    if (value.Is(Kind::kTuple)) {
      return scope.is_inside() ? Frame("(...)") : WriteTuple(value.items());
    }
    Frame("[");
    if (scope.is_inside()) {
      Frame("...");
    } else {
      WriteItems(value.items());
    }
    Frame("]");
  }

  void WriteView(const DictViewObject& view, const std::string& type) {
    Frame(type + "([");
    for (size_t i = 0; i < view.dict->items.size(); ++i) {
      if (i > 0) Frame(", ");
      const auto& [key, value] = view.dict->items[i];
      if (view.part == DictViewObject::Part::kItems) {
        WriteTuple({key, value});
      } else {
        Write(view.part == DictViewObject::Part::kKeys ? key : value);
      }
    }
    Frame("])");
  }

  void WriteString(const Text& text) {
    runtime_.Spend(text.size() / 4);
    const bool has_single = text.find('\'') != Text::npos;
    const bool has_double = text.find('"') != Text::npos;
    const char32_t quote = has_single && !has_double ? '"' : '\'';
    out_ += quote;
    for (const char32_t c : text) WriteCharacter(c, quote);
    out_ += quote;
  }

  void WriteCharacter(char32_t marked, char32_t quote) {
    const char32_t c = Plain(marked);
    const auto escape = [&](std::string_view ascii) {
      for (const char letter : ascii) {
        out_ += MarkedLike(static_cast<unsigned char>(letter), marked);
      }
    };
    if (c == quote || c == '\\') {
      out_ += MarkedLike('\\', marked);
      out_ += marked;
    } else if (c == '\n') {
      escape("\\n");
    } else if (c == '\r') {
      escape("\\r");
    } else if (c == '\t') {
      escape("\\t");
    } else if ((c >= ' ' && c < 0x7F) || (c >= 0x80 && IsPrintable(c))) {
      out_ += marked;
    } else if (c < 0x100) {
      escape(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)));
    } else if (c < 0x10000) {
      escape(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)));
    } else {
      escape(fmt::format("\\U{:08x}", static_cast<uint32_t>(c)));
    }
  }

  void Write(const Value& value) {
    const DepthScope depth(runtime_);
    runtime_.Spend(1);
    switch (value.kind()) {
      case Kind::kMissing:
      case Kind::kUndefined:
        return Plainly("Undefined");
      case Kind::kNone:
        return Plainly("None");
      case Kind::kBool:
        return Plainly(value.boolean() ? "True" : "False");
      case Kind::kInt:
        return Plainly(IntText(value.integer()));
      case Kind::kFloat:
        return Plainly(FloatText(value.real()));
      case Kind::kString:
        if (!IsMarkup(value)) return WriteString(value.text());
        Plainly("Markup(");
        WriteString(value.text());
        return Plainly(")");
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kDict:
        return WriteContainer(value);
      case Kind::kDictView:
        return WriteView(value.As<DictViewObject>(), TypeName(value));
      case Kind::kRange:
        return WriteRange(value.As<RangeObject>());
      case Kind::kIterator:
        return Plainly("<generator object>");
      case Kind::kObject:
        out_ += value.object().Repr(runtime_);
        return;
    }
  }

  void WriteRange(const RangeObject& range) {
    Plainly("range(" + IntText(range.start) + ", " + IntText(range.stop));
    if (range.step != 1) Plainly(", " + IntText(range.step));
    Plainly(")");
  }

  Runtime& runtime_;
  Text out_;
};

}  // namespace

Text Repr(Runtime& runtime, const Value& value) { return ReprWriter(runtime).Run(value); }

Text Str(Runtime& runtime, const Value& value) {
  if (value.Is(Kind::kString)) return value.text();
  if (value.Is(Kind::kUndefined) || value.Is(Kind::kMissing)) return {};
  return Repr(runtime, value);
}

}  // namespace hearth::jinja
