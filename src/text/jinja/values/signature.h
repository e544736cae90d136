// Binds the arguments of a call to named parameters, as Python does.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// The values of the parameters, in their order; missing where not given. Throws where one of the
// first `required` is missing, for unknown keywords and for too many arguments.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);

  bool Has(size_t index) const { return !values_[index].Is(Kind::kMissing); }
  // Given and not none.
  bool IsSet(size_t index) const { return Has(index) && !values_[index].Is(Kind::kNone); }
  const Value& operator[](size_t index) const { return values_[index]; }
  Value Or(size_t index, const Value& otherwise) const {
    return Has(index) ? values_[index] : otherwise;
  }
  bool True(Runtime& runtime, size_t index, bool otherwise) const;
  // An integer; throws where it is none.
  Int Integer(size_t index, Int otherwise) const;
  const Text& String(size_t index) const;

 private:
  std::string_view function_;
  Values values_;
};

// Throws: the function takes no keywords.
void RefuseKeywords(std::string_view function, const Arguments& arguments);

}  // namespace hearth::jinja
