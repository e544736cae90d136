// Perplexity: how well a model foresees a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engine/engine.h"

namespace hearth {

struct EvalResult {
  int64_t tokens = 0;  // scored
  double nll_per_token = 0;
  double perplexity = 0;
  // Share of FFN neurons whose activation is not zero; nothing for activations that are never
  // exactly zero (SiLU).
  std::optional<double> active_share;
};

// Called now and then with tokens scored, tokens in all, and nats per token so far.
using EvalProgressFn = std::function<void(uint64_t done, uint64_t total, double nll_per_token)>;

// Cuts `tokens` (a text without BOS) into windows of the engine's context: BOS and context - 1
// tokens, not overlapping, the last one shorter. Every token but BOS is scored; a model without
// BOS scores every token but a window's first. Throws Error(kInvalidArgument) for a text with
// nothing to score.
EvalResult EvaluateText(Engine& engine, std::span<const TokenId> tokens,
                        const EvalProgressFn& progress = {});

}  // namespace hearth
