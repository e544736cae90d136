// Pages of other origins that may use the server (--cors), in the words of the Fetch standard.
#pragma once

#include <string>
#include <vector>

#include "serve/http/http_message.h"
#include "serve/reply.h"

namespace hearth::serve {

// Immutable.
class AllowedOrigins {
 public:
  // "https://example.com", "http://localhost:3000", "null" (pages without an origin), or "*" for
  // all. Throws hearth::Error(kInvalidArgument) for what is none of these.
  explicit AllowedOrigins(std::vector<std::string> origins);

  bool Has(const std::string& origin) const;

  // The fields that let a page read the answer to its request; none where it may not.
  HeaderFields FieldsFor(const std::string& origin) const;

  // What a browser is told that asks before an allowed page's request (RequestHead::is_preflight).
  Response AnswerPreflight(const RequestHead& head) const;

 private:
  const std::vector<std::string> origins_;
  const bool has_all_;
};

}  // namespace hearth::serve
