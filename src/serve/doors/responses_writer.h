// Answers of the Responses API: a response, or the events that build one
// (https://platform.openai.com/docs/api-reference/responses-streaming).
#pragma once

#include <functional>
#include <memory>

#include "serve/doors/answer_writer.h"
#include "serve/doors/responses_request.h"

namespace hearth::serve {

// Takes the whole answer as a message, once, from any thread.
using StoreAnswerFn = std::function<void(api::ChatMessage answer)>;

// Takes from `request` the fields that the answer repeats, and its custom tools. `store` may be
// empty.
std::unique_ptr<AnswerWriter> NewResponsesWriter(const AnswerHead& head,
                                                 const ResponsesRequest& request,
                                                 StoreAnswerFn store);

}  // namespace hearth::serve
