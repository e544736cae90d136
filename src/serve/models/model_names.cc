#include "serve/models/model_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace hearth::serve {

std::string ShownName(const std::string& name) {
  constexpr size_t kLongest = 300;
  return Printable(name, kLongest);
}

std::string NameList(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 24;
  if (names.empty()) return "none";
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", ShownName(names[i]));
  }
  return names.size() > kMostNamed ? list + ", ..." : list;
}

RequestError NoSuchModel(const std::string& asked, const std::vector<std::string>& has) {
  return RequestError(
      Status::kNotFound,
      fmt::format("there is no model '{}': this server has {}", Printable(asked), NameList(has)),
      "model", "model_not_found");
}

}  // namespace hearth::serve
