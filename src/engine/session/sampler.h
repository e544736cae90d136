// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct SamplingOptions {
  float temperature = 0.8f;  // 0: the most likely token, ties to the lowest id
  int32_t top_k = 40;        // keep the k most likely; 0: all
  float top_p = 0.95f;       // keep the most likely until their probability reaches p; 1: all
  float min_p = 0.0f;        // keep what has at least this share of the best probability
  float repetition_penalty = 1.0f;      // > 1 divides positive, multiplies negative logits
  int32_t repetition_window = 64;       // newest tokens it looks at, prompt included; -1: all
  float frequency_penalty = 0.0f;       // per earlier occurrence in the generated text
  float presence_penalty = 0.0f;        // once for a token that occurred in it
  std::map<TokenId, float> logit_bias;  // finite, or -inf: never that token
  uint64_t seed = 0;
};

// Throws Error(kInvalidArgument), naming the option, for values outside their ranges.
void ValidateSampling(const SamplingOptions& options);

// The same options, seed and logits give the same tokens. One per generation.
class Sampler {
 public:
  explicit Sampler(SamplingOptions options);

  // Throws Error(kCorrupt) where no logit is finite, and Error(kInvalidArgument) where logit_bias
  // and `allowed` forbid every token. history: prompt and generated tokens so far, of which the
  // last `generated` were generated. allowed: tokens that a grammar leaves, all where null; the
  // bits of others are as if their logits were -inf.
  TokenId Sample(std::span<const float> logits, std::span<const TokenId> history, size_t generated,
                 const TokenMask* allowed = nullptr);

 private:
  struct Candidate {
    TokenId id;
    float value;  // logit, later probability
  };

  void ReadLogits(std::span<const float> logits);
  void Forbid(const TokenMask& allowed);
  static void RefuseForbidden(const Candidate& best);
  void ApplyPenalties(std::span<const TokenId> history, size_t generated);
  void KeepTopK();
  void ToProbabilities();
  void KeepTopPAndMinP();

  SamplingOptions options_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

}  // namespace hearth
