// Answers of the Messages API: a message, or the events that build one
// (https://docs.anthropic.com/en/api/messages-streaming).
#pragma once

#include <memory>
#include <string>

#include "serve/doors/answer_writer.h"
#include "serve/reply.h"

namespace hearth::serve {

// prompt_tokens: of the request, which a stream tells before it has an answer.
std::unique_ptr<AnswerWriter> NewMessagesWriter(const AnswerHead& head, int64_t prompt_tokens);

// Sends to `reply`, with errors in the words of the Messages API: {"type": "error", "error":
// {"type", "message"}}.
std::shared_ptr<Reply> ReplyOfMessages(std::shared_ptr<Reply> reply);

// {"input_tokens": N}.
std::string CountedTokensDocument(int64_t tokens);

}  // namespace hearth::serve
