// The filters by subject; builtins.cc joins the tables.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/builtins/builtins.h"

namespace hearth::jinja {

struct NamedFilter {
  std::string_view name;
  FilterFn function;
};

// Null where the table has none of that name.
FilterFn FindTextFilter(std::string_view name);
FilterFn FindMarkupFilter(std::string_view name);  // HTML and URLs
FilterFn FindSequenceFilter(std::string_view name);
FilterFn FindLazyFilter(std::string_view name);  // what gives an iterator
FilterFn FindValueFilter(std::string_view name);

// The filter or test called `name`, which is itself a value of the template; throws where there is
// none.
FilterFn FilterByValue(Runtime& runtime, const Value& name);
TestFn TestByValue(Runtime& runtime, const Value& name);

// What the parameters "attribute", "case_sensitive" and "default" of many filters do: a path
// "name.3.name" into an item; texts as small letters where case does not count.
class AttributePath {
 public:
  // No path: the item itself. `missing_default` (may be missing) replaces what is undefined.
  AttributePath(Runtime& runtime, const Value& attribute, bool ignore_case,
                const Value& missing_default = Value());
  Value Get(Runtime& runtime, const Value& item) const;

 private:
  Values parts_;
  bool ignore_case_;
  Value default_;
};

// "a,b.c" as several paths; one where there is no comma.
std::vector<AttributePath> AttributePaths(Runtime& runtime, const Value& attribute,
                                          bool ignore_case);

// What str(value) gives, as a value.
Value AsString(Runtime& runtime, const Value& value);

}  // namespace hearth::jinja
