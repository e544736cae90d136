// What a model's logits say of a text: its likeliest next tokens, and how well it foresaw the ones
// that came.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "pass/transformer_pass.h"
#include "sparsity/selector.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// The first of the largest. `logits` holds a value per token of the vocabulary.
TokenId LikeliestToken(std::span<const float> logits);

// -log softmax(logits)[target], in nats, summed in double.
double NegativeLogLikelihood(std::span<const float> logits, TokenId target);

// A token and how likely it was: the natural logarithm of its probability before any sampling
// option took effect.
struct TokenScore {
  TokenId id = -1;
  float logprob = 0;
};
struct ScoredToken {
  TokenScore token;
  std::vector<TokenScore> top;  // the likeliest, in falling order; equals by id
};

// `count` of the likeliest, at most all; count >= 0.
ScoredToken ScoreToken(std::span<const float> logits, TokenId token, int count);

// Called with a position of the text and the logits after it, which hold during the call.
using LogitsFn = std::function<void(size_t position, std::span<const float> logits)>;

// Runs `tokens` in an empty context, as many at a time as a batch takes, and calls fn for every
// position in order. Throws what TransformerPass::Run and fn throw.
void ForAllLogits(TransformerPass& pass, KvPool& kv_pool, std::span<const TokenId> tokens,
                  ActivationSelector& selector, PassObserver* observer, const LogitsFn& fn);

}  // namespace hearth
