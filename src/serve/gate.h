// Who may ask the server, and for what: all that is decided before a body is read.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/cors.h"
#include "serve/http/http_message.h"
#include "serve/request_error.h"

namespace hearth::serve {

// What can be asked for, beside files of the page.
enum class Endpoint {
  kChat,
  kResponses,
  kMessages,
  kCountTokens,
  kCompletions,
  kEmbeddings,
  kModels,
  kModel,  // by its name, which need not be there
  kStats,
  kNeurons,
  kAdapters,
  kSetAdapters,
  kTokenize,
  kDetokenize,
  kHealth,
  kMetrics,
};

// The path of the Messages API; errors of it and what lies below it have a form of their own.
inline constexpr std::string_view kMessagesPath = "/v1/messages";

struct GateOptions {
  std::vector<std::string> keys;  // any of them opens it; none: nobody is asked
  // Only requests that name this machine as their host: a page elsewhere cannot reach the server
  // under a name that it lets point here.
  bool local_hosts_only = false;
  std::vector<std::string> cors;  // origins whose pages may use the server, as AllowedOrigins
};

// Immutable but for Stop. Any thread.
class Gate {
 public:
  // Throws hearth::Error(kInvalidArgument) for an origin that is none.
  explicit Gate(GateOptions options);

  // Throws RequestError for what is refused before its body is read: 401, 403, 404, 405, and 503
  // while stopping.
  void CheckHead(const RequestHead& head) const;
  // A browser's question before an allowed page's request: it has no key, and gets its answer from
  // origins().
  bool IsAllowedPreflight(const RequestHead& head) const {
    return head.is_preflight() && origins_.Has(head.origin);
  }
  const AllowedOrigins& origins() const { return origins_; }

  // Of a request that CheckHead lets pass; nothing: it asks for a file of the page, at RoutePath.
  std::optional<Endpoint> EndpointOf(const RequestHead& head) const;
  // The path of a request's target as the table of endpoints has it: clients that are told the
  // address of the server alone leave "/v1" out, others write it before everything.
  static std::string RoutePath(const std::string& target);
  // The name in the path of Endpoint::kModel.
  static std::string ModelOf(const std::string& target);
  // The path that a response is counted under: one of few, whatever is asked for.
  static std::string CountedPath(const std::string& target);

  // New requests are refused from now on.
  void Stop() { is_stopping_ = true; }
  bool is_stopping() const { return is_stopping_; }

 private:
  void CheckOrigin(const RequestHead& head) const;
  void CheckKey(const RequestHead& head) const;

  const GateOptions options_;
  const AllowedOrigins origins_;
  std::atomic<bool> is_stopping_{false};
};

// Whether they are equal, in a time that depends on neither's content.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace hearth::serve
