// Requests of the Messages API (https://docs.anthropic.com/en/api/messages).
#pragma once

#include <string_view>

#include "serve/requests.h"

namespace hearth::serve {

// The request as a chat. Thoughts of earlier answers are left out, as chat templates do. Throws
// RequestError, naming the field, for what is malformed, out of range or not available; and nothing
// else, whatever the bytes. counts_only: of /v1/messages/count_tokens, which has no max_tokens.
ChatRequest ParseMessagesRequest(std::string_view body, bool counts_only,
                                 ParseOptions options = {});

}  // namespace hearth::serve
