// A request to the BatchScheduler, and what becomes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/session/generation.h"
#include "pass/adapter_terms.h"

namespace hearth {

// How a request ended.
struct BatchOutcome {
  FinishReason finish_reason = FinishReason::kLength;
  std::string stop_text;       // that the answer ended at; empty: at none
  std::optional<Error> error;  // why there is no result, or no more of it
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of them, which were not computed again
  std::vector<TokenId> generated;
  double wait_ms = 0;            // before the first pass
  double prefill_ms = 0;         // until the first token
  double decode_ms = 0;          // from there to the end
  std::vector<float> embedding;  // where it was asked for
};

struct BatchRequest {
  std::vector<TokenId> prompt;
  GenerateOptions generate;
  // What its tokens are computed with. Unset: no adapter, whatever the engine's default is.
  AdapterMix adapters;
  // Instead of generating: the prompt's last hidden states, after the output norm, pooled as the
  // model's spec says. Nothing of `generate` but `cancel` counts then.
  bool wants_embedding = false;
  // Where it is set it is called by Step before on_token: once, with the scores of the prompt's
  // tokens but the first, each as likely as what is before it makes it, with as many of the
  // likeliest as generate.top_logprobs says. All of the prompt is computed then, whatever is in the
  // cache.
  std::function<void(std::vector<ScoredToken> scores)> on_prompt;
  // Called by Step, in this order: generate.on_prefill after every pass over the prompt; on_token
  // once for every token, perhaps without text where text is held back, and once more at the end
  // where something still was; and then, once, on_done. Where one of the first two throws, the
  // request fails of that; on_done must not.
  std::function<void(std::string_view text, std::vector<ScoredToken> scores)> on_token;
  std::function<void(const BatchOutcome& outcome)> on_done;
};

}  // namespace hearth
