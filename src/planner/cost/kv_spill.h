// How long a token takes whose keys and values lie on flash in part (M §4.1, Figure 2): they are
// read beside all else, so that a token takes as long as the longer of the two.
#pragma once

#include <cstdint>

#include "planner/cost/cost_model.h"

namespace hearth {

// Milliseconds of a token with `context` tokens before it, of which `spilled` lie on flash. What
// `in` says of a context does not count.
double SpilledTokenMs(const CostInputs& in, int64_t context, int64_t spilled);

// The crossover: with `resident` tokens in memory, the most that may lie on flash before reading
// them takes longer than all else, in whole pages; at most kMostHiddenTokens.
inline constexpr int64_t kMostHiddenTokens = int64_t{1} << 24;
int64_t HiddenKvTokens(const CostInputs& in, int64_t resident);

}  // namespace hearth
