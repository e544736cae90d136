// Documents of the OpenAI API that the server sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"

namespace hearth::serve {

enum class AnswerKind { kChat, kCompletion, kResponse, kMessage };

// What all documents of one request have in common.
struct AnswerHead {
  AnswerKind kind = AnswerKind::kChat;
  std::string id;       // "chatcmpl-...", "cmpl-...", "resp_..." or "msg_..."
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// Tokens of a request, all its answers together.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, not computed again
  int64_t completion_tokens = 0;
};

// A token's score with the bytes that the tokens stand for.
struct NamedScore {
  std::string bytes;
  float logprob = 0;
};
struct NamedToken {
  NamedScore token;
  std::vector<NamedScore> top;
  bool has_score = true;  // a prompt's first token has none
};

// The most that a score usually takes in a document.
inline constexpr size_t kScoreBytes = 120;

// A call of a tool, or what is new of it: then id and name are in its first part only.
struct CallOfTool {
  int64_t index = 0;
  std::string id;
  std::string name;
  std::string arguments;  // JSON
};

// One of a request's answers, or what is new of it.
struct Answer {
  int64_t index = 0;
  std::string text;
  std::string thoughts;  // before it
  std::vector<CallOfTool> calls;
  bool ends_in_calls = false;                     // whole ones, in this or an earlier part
  std::optional<std::vector<NamedToken>> scores;  // where they were asked for
  size_t text_offset = 0;  // of the first score's token in the whole text, in characters
  std::optional<api::FinishReason> finish_reason;  // nothing: it goes on
  std::string stop_text;  // of the request's stop texts, that it ended at; empty: at none
};

// Code points of UTF-8, also of a part that begins or ends inside of one: each counts where it
// begins.
size_t CountCharacters(std::string_view utf8);

// {"object": "chat.completion" or "text_completion", ...}.
std::string AnswerDocument(const AnswerHead& head, const std::vector<Answer>& answers,
                           const Usage& usage);

// A part of a stream with what is new of one answer. first: it opens the answer.
std::string ChunkDocument(const AnswerHead& head, const Answer& delta, bool first,
                          bool usage_follows);
// The part without an answer that tells the usage.
std::string UsageDocument(const AnswerHead& head, const Usage& usage);

struct Embedding {
  std::vector<float> vector;
};
std::string EmbeddingsDocument(const std::string& model, const std::vector<Embedding>& embeddings,
                               bool as_base64, int64_t prompt_tokens);

// A model that clients may ask for.
struct ModelEntry {
  std::string name;
  int64_t created = 0;             // seconds since 1970
  std::optional<int64_t> context;  // tokens; nothing: not known, as it is not loaded
  bool is_loaded = false;
};
std::string ModelsDocument(const std::vector<ModelEntry>& models);
// One of them alone.
std::string ModelDocument(const ModelEntry& model);

// Tokens that take more are refused.
inline constexpr size_t kMostAnswerBytes = size_t{8} << 20;
// {"tokens": ids}, with pieces {"tokens": [{"id", "piece"}]}, where a piece that is no UTF-8 is a
// list of bytes. piece_of may be empty. Throws RequestError(kPayloadTooLarge) where that would be
// more than kMostAnswerBytes.
std::string TokensDocument(const std::vector<api::TokenId>& tokens,
                           const std::function<std::string(api::TokenId)>& piece_of);
std::string ContentDocument(const std::string& content);

// /v1/hearth/stats: docs/server.md.
std::string StatsDocument(const std::string& name, const api::ModelInfo& info,
                          const api::Stats& stats);

// /v1/hearth/neurons: docs/server.md.
std::string NeuronsDocument(const api::NeuronPicture& picture, bool is_streamed);

// {"status": "ok", "fault" or "stopping"}.
std::string HealthDocument(const std::string& status, const std::string& message);

}  // namespace hearth::serve
