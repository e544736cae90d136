// Who may ask the server, and for what: all that is decided before a body is read.
#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "serve/page.h"
#include "serve/service.h"

namespace hearth::serve {

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  volatile uint8_t difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<uint8_t>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

// The path of a route as it stands in the table: clients that are told the address of the server
// alone leave "/v1" out, others write it before everything.
std::string Service::RoutePath(const std::string& target) {
  constexpr std::string_view kVersion = "/v1";
  std::string path = PathOfTarget(target);
  const auto is_there = [](const std::string& wanted) {
    const std::vector<Route>& routes = Routes();
    return std::any_of(routes.begin(), routes.end(),
                       [&](const Route& route) { return wanted == route.path; });
  };
  if (is_there(path)) return path;
  constexpr std::string_view kModel = "/models/";
  const std::string longer = std::string(kVersion) + path;
  if (is_there(longer) || path.compare(0, kModel.size(), kModel) == 0) return longer;
  const std::string version_and_slash = std::string(kVersion) + "/";
  const auto has_version = [&](const std::string& text) {
    return text.compare(0, version_and_slash.size(), version_and_slash) == 0;
  };
  if (!has_version(path)) return path;
  std::string shorter = path.substr(kVersion.size());
  return shorter != "/" && !has_version(shorter) && is_there(shorter) ? shorter : path;
}

std::string Service::EndpointOf(const std::string& target) {
  const std::string path = RoutePath(target);
  for (const Route& route : Routes()) {
    if (path == route.path) return path;
  }
  return IsPageFile(path) ? "/" : "other";
}

void Service::CheckOrigin(const RequestHead& head) const {
  if (options_.local_hosts_only && !IsThisMachine(head.host)) {
    throw RequestError(
        Status::kForbidden,
        "the request's host is not this machine: a server that is reached under other names must "
        "ask for a key, or be told that it need not (allow_no_key)");
  }
  // What a page may read of an answer the browser decides, but work is done before it does.
  if (head.origin.empty() || head.method != "POST") return;
  const size_t scheme = head.origin.find("://");
  if (scheme != std::string::npos && head.origin.substr(scheme + 3) == head.host) return;
  if (origins_.Has(head.origin)) return;
  throw RequestError(
      Status::kForbidden,
      "pages of other origins may not use this server, unless its options name their "
      "origin (cors)");
}

void Service::CheckKey(const RequestHead& head) const {
  if (options_.keys.empty()) return;
  const std::string scheme = "Bearer ";
  const bool is_bearer = boost::beast::iequals(head.authorization.substr(0, scheme.size()), scheme);
  const bool has_key = is_bearer || !head.api_key.empty();
  std::string_view given = head.api_key;
  if (is_bearer) given = std::string_view(head.authorization).substr(scheme.size());
  given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));
  bool is_known = false;
  for (const std::string& key : options_.keys) {
    is_known = EqualInConstantTime(key, given) || is_known;
  }
  if (is_known) return;
  throw RequestError(
      Status::kUnauthorized,
      has_key ? "the key is wrong"
              : "a key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
      "", "invalid_api_key");
}

bool Service::IsAllowedPreflight(const RequestHead& head) const {
  return head.is_preflight() && origins_.Has(head.origin);
}

void Service::CheckHead(const RequestHead& head) const {
  CheckOrigin(head);
  if (IsAllowedPreflight(head)) return;  // which has no key
  const std::string path = RoutePath(head.target);
  std::string allowed;
  // Without a key too: it is asked for there.
  if (IsPageFile(path)) {
    if (head.answered_method() == "GET") return;
    allowed = "GET, HEAD";
  }
  for (const Route& route : Routes()) {
    if (path != route.path && !(path == model_path_ && route.path == std::string("/v1/models"))) {
      continue;
    }
    if (head.answered_method() != route.method) {
      allowed = route.method == std::string("GET") ? "GET, HEAD" : route.method;
      continue;
    }
    if (route.needs_key) CheckKey(head);
    const bool is_work = head.method == "POST";
    if (is_stopping_ && is_work) {
      throw RequestError(Status::kUnavailable, "the server is stopping", "", "stopping");
    }
    return;
  }
  // Without a key nobody learns what is here.
  CheckKey(head);
  if (!allowed.empty()) {
    RequestError error(Status::kMethodNotAllowed, fmt::format("{} takes only {}", path, allowed));
    error.set_allowed(allowed);
    throw error;
  }
  constexpr std::string_view kModels = "/v1/models/";
  if (path.rfind(kModels, 0) == 0) RefuseModel(path.substr(kModels.size()));
  throw RequestError(Status::kNotFound, fmt::format("there is nothing at '{}'", Printable(path)),
                     "", "not_found");
}

}  // namespace hearth::serve
