// Reads JSON that somebody else wrote, within limits, in a time that grows with its length only.
// (The library's own parser with a callback looks through all of an array for every object in it.)
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hearth {

struct JsonLimits {
  size_t most_levels = 64;  // of arrays and objects inside each other
  size_t most_values = std::numeric_limits<size_t>::max();   // of the whole document
  size_t most_members = std::numeric_limits<size_t>::max();  // of one object
  // Refuses an object that has a key twice; else the last value counts.
  bool each_key_once = false;
};

// Builds the document. One use; `fail` gets why the text passes a limit, and must throw.
template <typename Json, typename FailFn>
class JsonTreeReader final : public nlohmann::json_sax<Json> {
 public:
  using Base = nlohmann::json_sax<Json>;
  JsonTreeReader(const JsonLimits& limits, const FailFn& fail) : limits_(limits), fail_(fail) {}

  // Discarded where the text is not JSON in UTF-8.
  Json Read(std::string_view text) {
    const bool is_good = Json::sax_parse(text.begin(), text.end(), this);
    return is_good ? std::move(root_) : Json(Json::value_t::discarded);
  }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(typename Base::number_integer_t value) override { return Add(value); }
  bool number_unsigned(typename Base::number_unsigned_t value) override { return Add(value); }
  bool number_float(typename Base::number_float_t value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(typename Base::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Json& object = *open_.back();
    const size_t before = object.size();
    member_ = &object[name];
    if (object.size() == before && limits_.each_key_once) {
      fail_(fmt::format("key '{}' is there twice", Printable(name)));
    }
    if (object.size() > limits_.most_members) fail_("an object of it has too many members");
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  Json& Place(Json value) {
    if (++num_values_ > limits_.most_values) fail_("it holds too many values");
    Json* place = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      place = &open_.back()->back();
    } else if (!open_.empty()) {
      place = member_;
    }
    *place = std::move(value);
    return *place;
  }

  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  // Values that are open do not move: what holds them gets no other before they are closed.
  bool Open(Json value) {
    if (open_.size() == limits_.most_levels) fail_("it is nested too deeply");
    open_.push_back(&Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  const FailFn& fail_;
  Json root_;
  std::vector<Json*> open_;  // values that are being read, from the outermost on
  Json* member_ = nullptr;   // of the innermost, an object: the place of the next value
  size_t num_values_ = 0;
};

// The document; discarded where the text is not JSON in UTF-8. fail(const std::string& why) is
// called where it passes a limit, and must throw.
template <typename Json, typename FailFn>
Json ReadJson(std::string_view text, const JsonLimits& limits, const FailFn& fail) {
  return JsonTreeReader<Json, FailFn>(limits, fail).Read(text);
}

// For documents whose keys all count: throws an Error with `code` for an object that has a key
// twice, and for nesting past 64 levels: the library copies and prints values recursively.
inline nlohmann::json ReadJsonDocument(std::string_view text, const std::string& file,
                                       ErrorCode code) {
  return ReadJson<nlohmann::json>(text, {.each_key_once = true},
                                  [&](const std::string& why) { throw Error(code, file, why); });
}

}  // namespace hearth
