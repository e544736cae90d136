#include "text/jinja/builtins/filters.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {
namespace {

Value Unsupported(Runtime& /*runtime*/, const Value& /*value*/, const Arguments& /*arguments*/) {
  throw Failure("the filters pprint, random, striptags, urlize and wordwrap are not supported");
}

// Of Jinja's own filters those that no chat template needs.
constexpr std::string_view kUnsupported[] = {"pprint", "random", "striptags", "urlize", "wordwrap"};

}  // namespace

FilterFn FindFilter(std::string_view name) {
  for (const auto find :
       {FindTextFilter, FindSequenceFilter, FindLazyFilter, FindValueFilter, FindMarkupFilter}) {
    if (const FilterFn filter = find(name)) return filter;
  }
  const bool is_unsupported =
      std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
  return is_unsupported ? Unsupported : nullptr;
}

FilterFn FilterByValue(Runtime& runtime, const Value& name) {
  const FilterFn filter = name.Is(Kind::kString) ? FindFilter(EncodeUtf8(name.text())) : nullptr;
  if (filter == nullptr) {
    throw Failure("there is no filter " + Printable(EncodeUtf8(Repr(runtime, name))));
  }
  return filter;
}

}  // namespace hearth::jinja
