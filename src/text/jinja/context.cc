#include "text/jinja/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {
namespace {

constexpr size_t kMaxNesting = 200;

// Builds values while the text is read, so that members keep their order and numbers their digits.
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonReader(Heap& heap) : heap_(heap) {}

  // Throws Error(kInvalidArgument) where the text is not JSON.
  Value Read(std::string_view json, std::string_view where) {
    json_ = json;
    where_ = where;
    nlohmann::json::sax_parse(json.begin(), json.end(), this);
    return result_;
  }

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Integer(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Value::Integer(value)); }
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return Add(Value::Float(value));
    const auto integer = ParseInt(DecodeText(digits, false), 10);
    if (!integer) Fail("holds an integer of more than 38 digits, which is not supported");
    return Add(Value::Integer(*integer));
  }
  bool string(string_t& value) override { return Add(heap_.String(DecodeText(value, false))); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(size_t /*size*/) override { return Open(heap_.New<DictObject>()); }
  bool key(string_t& name) override {
    open_.back().key = heap_.String(DecodeText(name, false));
    return true;
  }
  bool end_object() override {
    const Value value(open_.back().dict);
    open_.pop_back();
    return Add(value);
  }
  bool start_array(size_t /*size*/) override { return Open(nullptr); }
  bool end_array() override {
    const Value value = heap_.List(std::move(open_.back().items));
    open_.pop_back();
    return Add(value);
  }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    const auto end = json_.begin() + static_cast<ptrdiff_t>(std::min(position, json_.size()));
    Fail(fmt::format("is not valid JSON: see line {}", std::count(json_.begin(), end, '\n') + 1));
  }

 private:
  struct OpenValue {
    DictObject* dict = nullptr;  // null: an array
    Value key;
    Values items;
  };

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, Field{where_}, what);
  }

  bool Open(DictObject* dict) {
    if (open_.size() == kMaxNesting) Fail("is nested too deeply");
    open_.push_back({dict, {}, {}});
    return true;
  }

  bool Add(const Value& value) {
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().dict != nullptr) {
      open_.back().dict->SetText(open_.back().key, value);
    } else {
      open_.back().items.push_back(value);
    }
    return true;
  }

  Heap& heap_;
  std::string_view json_;
  std::string_view where_;
  std::vector<OpenValue> open_;
  Value result_;
};

}  // namespace

Context::Context() : heap_(std::make_unique<Heap>()), dict_(heap_->New<DictObject>()) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

Context Context::FromJson(std::string_view json, std::string_view where) {
  Context context;
  const Value value = JsonReader(*context.heap_).Read(json, where);
  if (!value.Is(Kind::kDict)) {
    throw Error(ErrorCode::kInvalidArgument, Field{where}, "is not a JSON object");
  }
  for (const auto& [key, member] : value.dict().items) context.dict_->SetText(key, member);
  return context;
}

void Context::Set(std::string_view name, std::string_view text, bool trusted) {
  dict_->SetText(heap_->String(Own(name)), heap_->String(DecodeText(text, trusted)));
}

void Context::SetText(std::string_view name, std::string_view text) { Set(name, text, false); }
void Context::SetTrustedText(std::string_view name, std::string_view text) {
  Set(name, text, true);
}

void Context::SetBool(std::string_view name, bool value) {
  dict_->SetText(heap_->String(Own(name)), Value::Bool(value));
}

void Context::SetJson(std::string_view name, std::string_view json) {
  dict_->SetText(heap_->String(Own(name)), JsonReader(*heap_).Read(json, name));
}

void Context::Trust(std::string_view name) {
  const Value* value = dict_->FindText(Own(name));
  if (value != nullptr && value->Is(Kind::kString)) {
    SetTrustedText(name, EncodeUtf8(value->text()));
  }
}

bool Context::Has(std::string_view name) const { return dict_->FindText(Own(name)) != nullptr; }

bool Context::IsTrue(std::string_view name) const {
  const Value* value = dict_->FindText(Own(name));
  if (value == nullptr) return false;
  Runtime runtime{Limits()};
  return hearth::jinja::IsTrue(runtime, *value);
}

}  // namespace hearth::jinja
