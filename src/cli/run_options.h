// The options of `hearth run`, and the two ways it runs.
#pragma once

#include <optional>
#include <string>

#include "cli/model_options.h"
#include "engine/session.h"
#include "text/chat_format.h"

namespace hearth::cli {

struct RunOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool special = false;  // special tokens that are written out in the prompt are read as such
  std::optional<ChatFormat> chat_format;  // nothing: from the model's template
  std::string system;                     // system message of a chat
  GenerateOptions generate;
  bool json = false;
  bool verbose = false;
};

// One completion of the prompt: text to stdout, statistics to stderr, or JSON.
int RunCompletion(const RunOptions& options);

// Multi-turn chat on the terminal until end of input. Ctrl-C stops an answer.
int RunChat(const RunOptions& options);

}  // namespace hearth::cli
