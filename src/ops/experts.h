// Mixture of experts: choosing experts for tokens, and collecting tokens by expert so that each
// expert's weights are read once per batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/compute.h"
#include "tensor/view.h"

namespace hearth {

// The tokens that one expert computes, ascending, with the weight of its result for each.
struct ExpertLoad {
  std::vector<int64_t> tokens;
  std::vector<float> weights;
};

struct RoutingRule {
  int64_t experts_per_token = 0;
  bool sigmoid = false;           // scores are sigmoids of logits, and not their softmax
  const float* bias = nullptr;    // [experts], added to scores where experts are chosen; or null
  int64_t groups = 1;             // divides the number of experts
  int64_t groups_per_token = 1;   // those whose two best scores have the largest sums
  bool normalize_weights = true;  // the chosen scores are divided by their sum
  double weight_scale = 1;
};

// For each row of `logits` [tokens][experts] (overwritten by scores) the experts with the largest
// scores; ties go to the lower index. `loads` has an entry per expert.
void RouteTokens(Compute& compute, FloatView logits, const RoutingRule& rule,
                 std::span<ExpertLoad> loads);

// out[i] = x[rows[i]].
void GatherRows(FloatView x, std::span<const int64_t> rows, FloatView out);

// out[rows[i]] += weights[i] * x[i].
void ScatterAddRows(Compute& compute, FloatView x, std::span<const int64_t> rows,
                    std::span<const float> weights, FloatView out);

}  // namespace hearth
