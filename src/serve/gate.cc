#include "serve/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "serve/page.h"

namespace hearth::serve {
namespace {

struct Route {
  std::string_view method;
  std::string_view path;
  bool needs_key;
  Endpoint endpoint;
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", true, Endpoint::kChat},
    {"POST", "/v1/responses", true, Endpoint::kResponses},
    {"POST", kMessagesPath, true, Endpoint::kMessages},
    {"POST", "/v1/messages/count_tokens", true, Endpoint::kCountTokens},
    {"POST", "/v1/completions", true, Endpoint::kCompletions},
    {"POST", "/v1/embeddings", true, Endpoint::kEmbeddings},
    {"GET", "/v1/models", true, Endpoint::kModels},
    {"GET", "/v1/hearth/stats", true, Endpoint::kStats},
    {"GET", "/v1/hearth/neurons", true, Endpoint::kNeurons},
    {"GET", "/lora-adapters", true, Endpoint::kAdapters},
    {"POST", "/lora-adapters", true, Endpoint::kSetAdapters},
    {"POST", "/tokenize", true, Endpoint::kTokenize},
    {"POST", "/detokenize", true, Endpoint::kDetokenize},
    {"GET", "/health", false, Endpoint::kHealth},
    {"GET", "/metrics", true, Endpoint::kMetrics},
};
// Then a model's name, which may be any text.
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kVersion = "/v1";

bool BeginsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool IsRoute(std::string_view path) {
  return std::any_of(std::begin(kRoutes), std::end(kRoutes),
                     [&](const Route& route) { return path == route.path; });
}

}  // namespace

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  volatile uint8_t difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<uint8_t>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

Gate::Gate(GateOptions options) : options_(std::move(options)), origins_(options_.cors) {}

std::string Gate::ModelOf(const std::string& target) {
  return RoutePath(target).substr(kModelPrefix.size());
}

std::string Gate::RoutePath(const std::string& target) {
  std::string path = PathOfTarget(target);
  if (IsRoute(path)) return path;
  const std::string longer = std::string(kVersion) + path;
  if (IsRoute(longer) || BeginsWith(longer, kModelPrefix)) return longer;
  const std::string version_and_slash = std::string(kVersion) + "/";
  if (!BeginsWith(path, version_and_slash)) return path;
  std::string shorter = path.substr(kVersion.size());
  return IsRoute(shorter) && !BeginsWith(shorter, version_and_slash) ? shorter : path;
}

std::string Gate::CountedPath(const std::string& target) {
  std::string path = RoutePath(target);
  if (IsRoute(path)) return path;
  return IsPageFile(path) ? "/" : "other";
}

std::optional<Endpoint> Gate::EndpointOf(const RequestHead& head) const {
  const std::string path = RoutePath(head.target);
  for (const Route& route : kRoutes) {
    if (path == route.path && head.answered_method() == route.method) return route.endpoint;
  }
  if (IsPageFile(path)) return std::nullopt;
  return Endpoint::kModel;
}

void Gate::CheckOrigin(const RequestHead& head) const {
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

void Gate::CheckKey(const RequestHead& head) const {
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

void Gate::CheckHead(const RequestHead& head) const {
  CheckOrigin(head);
  if (IsAllowedPreflight(head)) return;  // which has no key
  const std::string path = RoutePath(head.target);
  std::string allowed;
  // Without a key too: it is asked for there.
  if (IsPageFile(path)) {
    if (head.answered_method() == "GET") return;
    allowed = "GET, HEAD";
  }
  const bool is_model = BeginsWith(path, kModelPrefix);
  for (const Route& route : kRoutes) {
    if (path != route.path && !(is_model && route.endpoint == Endpoint::kModels)) continue;
    if (head.answered_method() != route.method) {
      allowed = route.method == "GET" ? "GET, HEAD" : route.method;
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
  throw RequestError(Status::kNotFound, fmt::format("there is nothing at '{}'", Printable(path)),
                     "", "not_found");
}

}  // namespace hearth::serve
