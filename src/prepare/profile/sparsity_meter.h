// What the neurons of a model do over a text, measured by running it: how often gates fire and
// neurons are active, how unevenly, and what of it a cache of neurons would hold (P2
// §7.2.4).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "pass/transformer_pass.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct FfnSparsity {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t tokens = 0;    // that the FFN computed
  double gate = 0;       // share of (token, neuron) pairs whose gate passes the threshold
  double active = 0;     // whose product that reaches down is not zero
  double hot_share = 0;  // of the neurons: the fewest that 80% of active pairs belong to
};

// Shares of a token's active neurons that a cache did not hold, over tokens.
struct MissRates {
  double mean = 0;
  double p99 = 0;
};

struct SparsityReport {
  std::vector<FfnSparsity> ffns;  // ascending layer, then expert; those that computed a token
  double gate = 0;                // over all pairs
  double active = 0;
  // A cache that holds half of all neurons and starts empty, over the tokens after the first
  // quarter. Two queues as in P2 §4.2: a new entry joins inactive, a second access moves it
  // to active, which holds 90%; inactive's tail leaves.
  MissRates lru;
  MissRates two_queues;
};

// Runs `tokens` through the engine's model in an empty context, in the engine's mode. What is
// predicted does not count: neurons are active or not. Takes a bit per neuron and
// token. Throws Error(kInvalidArgument) for no tokens or more than the context holds.
SparsityReport MeasureSparsity(Engine& engine, std::span<const TokenId> tokens);

}  // namespace hearth
