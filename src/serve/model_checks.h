// What of a well-formed request a model cannot do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/requests.h"

namespace hearth::serve {

// Immutable; the model must outlive it. All throw RequestError, which names the field.
class ModelChecks {
 public:
  // held_bytes: of bodies and answers of all clients together.
  ModelChecks(const api::Model& model, size_t held_bytes);

  // That many answers of one request fit into the queue.
  void CheckCount(size_t answers) const;
  // Of embeddings, where a request says how long they must be.
  void CheckDimensions(const std::optional<int64_t>& dimensions) const;
  // There must be room for one token of an answer to each prompt; how many are asked for at most is
  // no demand. The scores of an answer that is not streamed must not be too many to hold. field:
  // what the request calls its prompts.
  void CheckPrompts(const std::vector<std::vector<api::TokenId>>& prompts,
                    const GenerationSettings& settings, std::string_view field) const;

 private:
  void CheckRoom(int64_t prompt_tokens, const GenerationSettings& settings,
                 std::string_view field) const;
  void CheckScores(const std::vector<std::vector<api::TokenId>>& prompts,
                   const GenerationSettings& settings) const;

  const api::Model& model_;
  const uint64_t most_scores_;  // of an answer that is not streamed
};

}  // namespace hearth::serve
