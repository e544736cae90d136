#include "serve/http/cors.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace hearth::serve {
namespace {

constexpr char kAll[] = "*";
// How long a browser need not ask again, in seconds.
constexpr char kMaxAge[] = "86400";

// Scheme, "://" and a host, perhaps with a port, as browsers write it: without a path.
bool IsOrigin(std::string_view text) {
  if (text == kAll || text == "null") return true;
  const size_t colon = text.find("://");
  if (colon == 0 || colon == std::string_view::npos) return false;
  const std::string_view host = text.substr(colon + 3);
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return c > ' ' && c < '\x7f' && c != '/' && c != '?' && c != '#' && c != '@' && c != '*' &&
           c != ',' && std::isupper(static_cast<unsigned char>(c)) == 0;
  });
}

}  // namespace

AllowedOrigins::AllowedOrigins(std::vector<std::string> origins)
    : origins_(std::move(origins)),
      has_all_(std::find(origins_.begin(), origins_.end(), kAll) != origins_.end()) {
  for (const std::string& origin : origins_) {
    if (IsOrigin(origin)) continue;
    throw Error(hearth::ErrorCode::kInvalidArgument, Field{"cors"}, "origin",
                "one such as https://example.com, in small letters and without a path, or *",
                Printable(origin));
  }
}

bool AllowedOrigins::Has(const std::string& origin) const {
  return has_all_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

HeaderFields AllowedOrigins::FieldsFor(const std::string& origin) const {
  if (origin.empty() || !Has(origin)) return {};
  if (has_all_) return {{"Access-Control-Allow-Origin", kAll}};
  return {{"Access-Control-Allow-Origin", origin}, {"Vary", "Origin"}};
}

Response AllowedOrigins::AnswerPreflight(const RequestHead& head) const {
  Response response = {.status = Status::kNoContent};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                      {"Access-Control-Max-Age", kMaxAge}};
  if (!head.asked_fields.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Headers", head.asked_fields);
  }
  return response;
}

}  // namespace hearth::serve
