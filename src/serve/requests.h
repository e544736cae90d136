// Requests of the OpenAI API: from bytes to checked values (docs/server.md lists the parameters).
// Knows no model: what only a model can refuse, such as a token it does not have, comes later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/request_error.h"

namespace hearth::serve {

// Most prompts, and choices of all of them together, that one request may ask for.
inline constexpr int64_t kMostChoices = 128;
// Most texts of a request for embeddings.
inline constexpr int64_t kMostInputs = 2048;

// How tokens are generated; of chats and completions alike.
struct GenerationSettings {
  std::string model;                  // empty: whatever is served
  std::optional<int64_t> max_tokens;  // nothing: as many as the context holds; 0 only with echo
  api::Sampling sampling;             // the defaults of the OpenAI API
  bool has_seed = false;              // else each answer gets one of its own
  std::vector<std::string> stop;
  int64_t n = 1;
  std::optional<int> top_logprobs;  // nothing: no scores
  bool echo = false;                // answers begin with the prompt, and have its scores
  bool stream = false;
  bool include_usage = false;                              // in a stream, after the last choice
  std::optional<std::string> json_schema;                  // as api::GenerateRequest has it
  std::optional<std::vector<api::AdapterScale>> adapters;  // likewise
  RequestNames names;                                      // of its fields
};

struct ChatRequest {
  GenerationSettings settings;
  std::vector<api::ChatMessage> messages;
  api::ToolOptions tools;  // none where none may be called
  std::string variables;   // of the chat template, as api::Model::EncodeChat takes them
};

// A text, or the token ids of one.
using TextOrTokens = std::variant<std::string, std::vector<api::TokenId>>;

struct CompletionRequest {
  GenerationSettings settings;
  std::vector<TextOrTokens> prompts;  // at least one
  bool parse_special = false;         // of their texts, as in TokenizeRequest
};

struct EmbeddingsRequest {
  std::string model;
  std::vector<TextOrTokens> inputs;   // at least one
  bool as_base64 = false;             // little-endian floats
  std::optional<int64_t> dimensions;  // that vectors must have
};

struct TokenizeRequest {
  std::string model;
  std::string content;
  bool add_special = false;    // the token that texts begin with
  bool with_pieces = false;    // also what every token stands for
  bool parse_special = false;  // special tokens that are written out are read as such
};

struct DetokenizeRequest {
  std::string model;
  std::vector<api::TokenId> tokens;
};

struct ParseOptions {
  bool lenient = false;  // fields that nobody knows are ignored, not refused
};

// All throw RequestError, naming the field, for what is malformed, out of range, not available or
// unknown; and nothing else, whatever the bytes.
ChatRequest ParseChatRequest(std::string_view body, ParseOptions options = {});
CompletionRequest ParseCompletionRequest(std::string_view body, ParseOptions options = {});
EmbeddingsRequest ParseEmbeddingsRequest(std::string_view body, ParseOptions options = {});
TokenizeRequest ParseTokenizeRequest(std::string_view body, ParseOptions options = {});
DetokenizeRequest ParseDetokenizeRequest(std::string_view body, ParseOptions options = {});

}  // namespace hearth::serve
