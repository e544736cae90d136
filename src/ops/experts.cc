#include "ops/experts.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace hearth {

void RouteTokens(Compute& compute, FloatView logits, const RoutingRule& rule,
                 std::span<ExpertLoad> loads) {
  for (ExpertLoad& load : loads) {
    load.tokens.clear();
    load.weights.clear();
  }
  const auto k = static_cast<size_t>(rule.experts_per_token);
  std::vector<size_t> order(loads.size());
  for (int64_t t = 0; t < logits.rows; ++t) {
    float* p = logits.row(t);
    compute.kernels().softmax(p, static_cast<int64_t>(loads.size()));
    std::iota(order.begin(), order.end(), size_t{0});
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(),
                      [p](size_t a, size_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
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
