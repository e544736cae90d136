#include "text/jinja/values/signature.h"

#include <fmt/format.h>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"

namespace hearth::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    throw Failure(fmt::format("{} takes at most {} arguments, not {}", function, names.size(),
                              arguments.positional.size()));
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [keyword, value] : arguments.keywords) {
    const std::string name = EncodeUtf8(keyword);
    size_t index = 0;
    while (index < names.size() && *(names.begin() + index) != name) ++index;
    if (index == names.size()) {
      throw Failure(fmt::format("{} takes no argument '{}'", function, name));
    }
    if (Has(index)) throw Failure(fmt::format("{} is given '{}' twice", function, name));
    values_[index] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!Has(i)) {
      throw Failure(fmt::format("{} lacks the argument '{}'", function, *(names.begin() + i)));
    }
  }
}

bool Parameters::True(Runtime& runtime, size_t index, bool otherwise) const {
  return Has(index) ? IsTrue(runtime, values_[index]) : otherwise;
}

Int Parameters::Integer(size_t index, Int otherwise) const {
  if (!Has(index)) return otherwise;
  if (values_[index].Is(Kind::kUndefined)) FailUndefined(values_[index]);
  if (!IsInteger(values_[index].kind())) {
    throw Failure(
        fmt::format("{} needs an integer, not a {}", function_, TypeName(values_[index])));
  }
  constexpr Int kLargest = Int{1} << 62;
  const Int value = values_[index].integer();
  if (value > kLargest || value < -kLargest) {
    throw Failure(fmt::format("{} cannot take so large an integer", function_));
  }
  return value;
}

const Text& Parameters::String(size_t index) const {
  if (!values_[index].Is(Kind::kString)) {
    throw Failure(fmt::format("{} needs a str, not a {}", function_, TypeName(values_[index])));
  }
  return values_[index].text();
}

void RefuseKeywords(std::string_view function, const Arguments& arguments) {
  if (!arguments.keywords.empty()) {
    throw Failure(fmt::format("{} takes no argument '{}'", function,
                              EncodeUtf8(arguments.keywords[0].first)));
  }
}

}  // namespace hearth::jinja
