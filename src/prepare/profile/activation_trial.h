// Which FFN activation a model was trained with, judged by how well it foresees a text with each:
// files that other programs convert from ReLU models do not say.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/given_activation.h"

namespace hearth {

struct ActivationScore {
  GivenActivation activation;
  double nll_per_token = 0;  // nats; infinity where logits were no numbers
};

struct ActivationTrial {
  int64_t tokens = 0;                   // scored, for each
  std::vector<ActivationScore> scores;  // the first is what the engine runs
  // Of `scores`, the best, where it beats the first clearly: by kClearNats per token and by
  // kClearErrors standard errors of the mean difference between tokens.
  std::optional<size_t> better;
};

inline constexpr double kClearNats = 0.05;
inline constexpr double kClearErrors = 4;
// Fewer tokens tell nothing.
inline constexpr int64_t kLeastTrialTokens = 16;

// Called with tokens run and in all. May throw, to cancel.
using TrialProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// Scores at most 256 tokens, spread over `tokens` (a text without BOS), with the engine's own
// activation and with relu, fatrelu (with the engine's threshold or 0.01), drelu and silu. Computes
// densely, allocates nothing large and leaves the engine as it was, also where it throws. Between
// passes; no sequence may be in use. Nothing for a text of fewer than kLeastTrialTokens and for
// FFNs whose SiLU is thresholded. Throws what TransformerPass::Run and `progress` throw.
std::optional<ActivationTrial> TryActivations(Engine& engine, std::span<const TokenId> tokens,
                                              const TrialProgressFn& progress = {});

// "perplexity over 250 tokens: silu 477.03, relu 5.1, ..., drelu 2.14".
std::string ActivationTrialText(const ActivationTrial& trial);

}  // namespace hearth
