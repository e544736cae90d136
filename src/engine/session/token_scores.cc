#include "engine/session/token_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/session/text_windows.h"

namespace hearth {

TokenId LikeliestToken(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  // The difference first: what is left of large logits is small.
  return best - static_cast<double>(logits[static_cast<size_t>(target)]) + std::log(sum);
}

ScoredToken ScoreToken(std::span<const float> logits, TokenId token, int count) {
  const double normalizer = NegativeLogLikelihood(logits, token) +
                            static_cast<double>(logits[static_cast<size_t>(token)]);
  const auto score = [&](TokenId id) {
    return TokenScore{
        id, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer)};
  };
  ScoredToken scored = {score(token), {}};
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto top = ids.begin() + std::min<ptrdiff_t>(count, std::ssize(ids));
  std::partial_sort(ids.begin(), top, ids.end(), [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (auto id = ids.begin(); id != top; ++id) scored.top.push_back(score(*id));
  return scored;
}

void ForAllLogits(TransformerPass& pass, KvPool& kv_pool, std::span<const TokenId> tokens,
                  ActivationSelector& selector, PassObserver* observer, const LogitsFn& fn) {
  KvSequence kv(kv_pool);
  RunInChunks(pass, kv, tokens, selector, observer, [&](size_t begin, size_t count) {
    for (size_t i = 0; i < count; i += TransformerPass::kMaxLogitRows) {
      const size_t rows = std::min<size_t>(TransformerPass::kMaxLogitRows, count - i);
      const FloatView logits = pass.Logits(static_cast<int64_t>(i), static_cast<int64_t>(rows));
      for (size_t r = 0; r < rows; ++r) {
        fn(begin + i + r, {logits.row(static_cast<int64_t>(r)), static_cast<size_t>(logits.cols)});
      }
    }
    return true;
  });
}

}  // namespace hearth
