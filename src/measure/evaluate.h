// Perplexity: how well a model foresees a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "measure/quality.h"

namespace hearth {

// How a text was foreseen.
struct TextScore {
  int64_t tokens = 0;  // scored
  double nll_per_token = 0;

  double perplexity() const;
};

struct ScoreOptions {
  TokenId bos = -1;                                           // negative where the model has none
  int64_t context = 0;                                        // tokens of a window
  std::string model;                                          // for messages
  std::function<void(uint64_t done, uint64_t all)> progress;  // tokens; may throw
};

// Scores `tokens` (a text without BOS) in windows as EvaluateText does, and looks at nothing else.
// Throws Error(kInvalidArgument) for a text with nothing to score, Error(kCorrupt) where logits are
// no numbers.
TextScore ScoreText(TransformerPass& pass, KvPool& kv_pool, ActivationSelector& selector,
                    std::span<const TokenId> tokens, const ScoreOptions& options);

// Perplexities that are only compared with each other are those of this part of a text: at most
// 4096 tokens, spread over it, in windows of at most kSampleContext.
inline constexpr int64_t kSampleContext = 512;
std::vector<TokenId> SampleToScore(std::span<const TokenId> text);

struct EvalResult {
  int64_t tokens = 0;  // scored
  double nll_per_token = 0;
  double perplexity = 0;
  Quality quality;
};

// Called now and then with tokens scored, tokens in all, and nats per token so far.
using EvalProgressFn = std::function<void(uint64_t done, uint64_t total, double nll_per_token)>;

// Cuts `tokens` (a text without BOS) into windows of the engine's context: BOS and context - 1
// tokens, not overlapping, the last one shorter. Every token but BOS is scored; a model without
// BOS scores every token but a window's first. Each token has its own active set at every position.
// Where the engine's mode is not dense, every window is computed densely too, from the same file,
// to compare the likeliest tokens. Throws Error(kInvalidArgument) for a text with nothing to score.
EvalResult EvaluateText(Engine& engine, std::span<const TokenId> tokens,
                        const EvalProgressFn& progress = {});

}  // namespace hearth
