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
  bool normalize_weights = true;  // the chosen probabilities are divided by their sum
  double weight_scale = 1;
};

// For each row of `logits` [tokens][experts] (overwritten by probabilities: softmax over all
// experts) the experts with the largest probability; ties go to the lower index. `loads` has an
// entry per expert.
void RouteTokens(Compute& compute, FloatView logits, const RoutingRule& rule,
                 std::span<ExpertLoad> loads);

// out[i] = x[rows[i]].
void GatherRows(FloatView x, std::span<const int64_t> rows, FloatView out);

// out[rows[i]] += weights[i] * x[i].
void ScatterAddRows(Compute& compute, FloatView x, std::span<const int64_t> rows,
                    std::span<const float> weights, FloatView out);

}  // namespace hearth
