// How two models foresee the same text: for weights before and after quantization.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "measure/evaluate.h"

namespace hearth {

struct Foresight {
  TextScore score;
  std::vector<TokenId> likeliest;  // at every scored position
};

// Scores `tokens` as ScoreText does, in windows of at most kSampleContext, with all neurons, and
// keeps what the model thinks likeliest. Throws likewise.
Foresight ForeseeText(Engine& engine, std::span<const TokenId> tokens,
                      const std::function<void(uint64_t done, uint64_t all)>& progress = {});

// The share of positions at which both think the same token likeliest. They must be of one text.
double AgreementOf(const Foresight& a, const Foresight& b);

}  // namespace hearth
