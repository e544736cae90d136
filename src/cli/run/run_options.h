// The options of `hearth run`, and the two ways it runs.
#pragma once

#include <optional>
#include <string>

#include "cli/options/model_options.h"
#include "cli/run/conversation.h"
#include "engine/session/session.h"
#include "text/chat/chat_format.h"
#include "text/chat/chat_template.h"

namespace hearth::cli {

struct RunOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool special = false;  // special tokens that are written out in the prompt are read as such
  std::optional<ChatFormat> chat_format;  // nothing: from the model's template
  std::string system;                     // system message of a chat
  bool raw = false;                       // continue the prompt, whatever the model was made for
  GenerateOptions generate;
  std::optional<int64_t> max_tokens;  // nothing: kDefaultTokens of a completion, no limit in chats
  bool json = false;
  bool verbose = false;
};

// One answer to the prompt, or with `raw` and for models without a chat template its continuation:
// text to stdout, statistics to stderr, or JSON.
int RunPrompt(const RunOptions& options);

// Multi-turn chat on the terminal until end of input. Ctrl-C stops an answer.
int RunChat(const RunOptions& options);

// The answer to one question, printed as it comes unless as JSON (its thoughts to stderr). Ctrl-C
// stops it. Throws Error(kContextFull) where the question does not fit.
ChatAnswer AnswerOnce(const RunOptions& options, Engine& engine, ChatTemplate chat_template,
                      const std::string& question);

}  // namespace hearth::cli
