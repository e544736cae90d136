// Reads a JSON object of a request field by field. What nobody asks for is refused by name
// (RefuseRest), so that a typing error is told.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace hearth::serve {

// In the order of the document, which means something in schemas.
using Json = nlohmann::ordered_json;

// The document of a request body. Throws RequestError where it is not JSON in UTF-8, naming an
// escape that is half of a character, for nesting past 32 levels, more than 2^17 values and more
// than 1024 members of one object, which no request needs.
Json ParseBody(std::string_view body);

// A document as it is sent. Texts of tokens may be parts of characters: what is not UTF-8 is
// replaced, never an error.
std::string JsonText(const Json& document);

// The most that ParseBody may take for it, about.
size_t DocumentBytes(std::string_view body);
// The value of a whole number, however it is written: 12 and 12.0. Nothing for others, and for
// those that 64 bits with a sign do not hold.
std::optional<int64_t> WholeNumber(const Json& value);

// Functions throw RequestError(400), naming the field, for a value of the wrong kind or outside its
// range. A field that is null is as if it were not there.
class Fields {
 public:
  // The object must outlive this. path: how messages name it, empty for the request itself. Throws
  // where it is no object.
  explicit Fields(const Json& object, std::string path = "");

  // The value, null where there is none.
  const Json* Take(const std::string& name);
  std::optional<bool> TakeBool(const std::string& name);
  std::optional<double> TakeNumber(const std::string& name, double low, double high);
  // 12.0 is as good as 12.
  std::optional<int64_t> TakeInteger(const std::string& name, int64_t low, int64_t high);
  std::optional<std::string> TakeString(const std::string& name);

  // A field of the OpenAI API that changes nothing of the answer here, whatever its value.
  void Ignore(const std::string& name) { taken_.insert(name); }
  // A field of the OpenAI API that is not there yet, or does not apply: refused with the reason
  // unless its value is null or `neutral`, which asks for what is done anyway.
  void Refuse(const std::string& name, const std::string& reason, const Json& neutral = nullptr);
  // Refuses whatever has not been asked for and is not null.
  void RefuseRest() const;

  // How messages name a field.
  std::string PathOf(const std::string& name) const;
  [[noreturn]] void Fail(const std::string& name, const std::string& expected) const;

 private:
  const Json& object_;
  const std::string path_;
  std::set<std::string> taken_;
};

}  // namespace hearth::serve
