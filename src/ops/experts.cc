#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace hearth {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void ScoreExperts(Compute& compute, const RoutingRule& rule, std::span<float> logits) {
  if (!rule.sigmoid) {
    compute.kernels().softmax(logits.data(), static_cast<int64_t>(logits.size()));
    return;
  }
  for (float& logit : logits) logit = 1.0f / (1.0f + std::exp(-logit));
}

// Makes the scores of experts that are in none of the chosen groups the lowest of all.
void KeepBestGroups(const RoutingRule& rule, std::span<float> scores) {
  const auto groups = static_cast<size_t>(rule.groups);
  const size_t size = scores.size() / groups;
  std::vector<std::pair<float, size_t>> sums;  // negative, so that the best come first
  for (size_t g = 0; g < groups; ++g) {
    float first = kLowest, second = kLowest;
    for (const float score : scores.subspan(g * size, size)) {
      second = std::max(second, std::min(first, score));
      first = std::max(first, score);
    }
    sums.emplace_back(-(size > 1 ? first + second : first), g);
  }
  std::sort(sums.begin(), sums.end());
  for (size_t i = static_cast<size_t>(rule.groups_per_token); i < groups; ++i) {
    const auto group = scores.subspan(sums[i].second * size, size);
    std::fill(group.begin(), group.end(), kLowest);
  }
}

// What experts are chosen by, of their scores.
std::span<const float> ChoiceOf(const RoutingRule& rule, std::span<const float> scores,
                                std::vector<float>& room) {
  if (rule.bias == nullptr && rule.groups == 1) return scores;
  room.assign(scores.begin(), scores.end());
  if (rule.bias != nullptr) {
    for (size_t e = 0; e < room.size(); ++e) room[e] += rule.bias[e];
  }
  if (rule.groups > 1) KeepBestGroups(rule, room);
  return room;
}

}  // namespace

void RouteTokens(Compute& compute, FloatView logits, const RoutingRule& rule,
                 std::span<ExpertLoad> loads) {
  for (ExpertLoad& load : loads) {
    load.tokens.clear();
    load.weights.clear();
  }
  const auto k = static_cast<size_t>(rule.experts_per_token);
  std::vector<size_t> order(loads.size());
  std::vector<float> room;
  for (int64_t t = 0; t < logits.rows; ++t) {
    const std::span<float> p(logits.row(t), loads.size());
    ScoreExperts(compute, rule, p);
    const std::span<const float> choice = ChoiceOf(rule, p, room);
    std::iota(order.begin(), order.end(), size_t{0});
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(),
                      [choice](size_t a, size_t b) {
                        return choice[a] > choice[b] || (choice[a] == choice[b] && a < b);
                      });
    float sum = 0;
    for (size_t i = 0; i < k; ++i) sum += p[order[i]];
    float scale = static_cast<float>(rule.weight_scale);
    if (rule.normalize_weights && sum > 0) scale /= sum;
    for (size_t i = 0; i < k; ++i) {
      loads[order[i]].tokens.push_back(t);
      loads[order[i]].weights.push_back(p[order[i]] * scale);
    }
  }
}

void GatherRows(FloatView x, std::span<const int64_t> rows, FloatView out) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row(static_cast<int64_t>(i)), x.row(rows[i]),
                static_cast<size_t>(x.cols) * sizeof(float));
  }
}

void ScatterAddRows(Compute& compute, FloatView x, std::span<const int64_t> rows,
                    std::span<const float> weights, FloatView out) {
  const auto scaled_add = compute.kernels().scaled_add;
  for (size_t i = 0; i < rows.size(); ++i) {
    scaled_add(x.row(static_cast<int64_t>(i)), weights[i], x.cols, out.row(rows[i]));
  }
}

}  // namespace hearth
