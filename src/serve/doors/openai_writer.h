// Answers of chats and completions of the OpenAI API (serve/answers.h).
#pragma once

#include <memory>

#include "serve/doors/answer_writer.h"

namespace hearth::serve {

// include_usage: a stream tells the usage after its answers.
std::unique_ptr<AnswerWriter> NewOpenAiWriter(const AnswerHead& head, bool include_usage);

}  // namespace hearth::serve
