#include "serve/model_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "serve/answers.h"

namespace hearth::serve {

ModelChecks::ModelChecks(const api::Model& model, size_t held_bytes)
    : model_(model), most_scores_(held_bytes / 2 / kScoreBytes) {}

void ModelChecks::CheckCount(size_t answers) const {
  const int64_t most = model_.info().parallel + model_.info().queue;
  if (static_cast<int64_t>(answers) <= most) return;
  throw RequestError(Status::kBadRequest,
                     fmt::format("the server takes at most {} answers at once", most), "n",
                     "invalid_value");
}

void ModelChecks::CheckDimensions(const std::optional<int64_t>& dimensions) const {
  const int64_t size = model_.info().embedding_size;
  if (dimensions.value_or(size) == size) return;
  throw RequestError(Status::kBadRequest,
                     fmt::format("dimensions: expected {}, the size of this model's embeddings, "
                                 "found {}",
                                 size, *dimensions),
                     "dimensions", "invalid_value");
}

void ModelChecks::CheckPrompts(const std::vector<std::vector<api::TokenId>>& prompts,
                               const GenerationSettings& settings, std::string_view field) const {
  for (const auto& prompt : prompts) CheckRoom(std::ssize(prompt), settings, field);
  if (!settings.stream && settings.top_logprobs) CheckScores(prompts, settings);
}

void ModelChecks::CheckRoom(int64_t prompt_tokens, const GenerationSettings& settings,
                            std::string_view field) const {
  const int64_t context = model_.info().context;
  // Where nothing is to be generated the prompt may fill it.
  const bool fits =
      prompt_tokens < context || (prompt_tokens == context && settings.max_tokens == 0);
  if (fits) return;
  const int64_t to_generate = settings.max_tokens.value_or(1);
  throw RequestError(
      Status::kBadRequest,
      fmt::format("This model's maximum context length is {} tokens, but {} were asked for: {} of "
                  "the {} and {} to generate",
                  context, prompt_tokens + to_generate, prompt_tokens, field, to_generate),
      std::string(field), "context_length_exceeded");
}

void ModelChecks::CheckScores(const std::vector<std::vector<api::TokenId>>& prompts,
                              const GenerationSettings& settings) const {
  uint64_t scores = 0;
  for (const std::vector<api::TokenId>& prompt : prompts) {
    const int64_t room = model_.info().context - std::ssize(prompt);
    const int64_t echoed = settings.echo ? std::ssize(prompt) : 0;
    const int64_t tokens =
        settings.n * (echoed + std::min(settings.max_tokens.value_or(room), room));
    scores += static_cast<uint64_t>(tokens) * static_cast<uint64_t>(*settings.top_logprobs + 1);
  }
  if (scores <= most_scores_) return;
  throw RequestError(
      Status::kBadRequest,
      fmt::format("it asks for up to {} scores: an answer that is not streamed may have {}; stream "
                  "it, or ask for fewer tokens, answers or scores",
                  scores, most_scores_),
      "logprobs", "invalid_value");
}

}  // namespace hearth::serve
