#include "measure/agreement.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"
#include "sparsity/selector.h"

namespace hearth {

Foresight ForeseeText(Engine& engine, std::span<const TokenId> tokens,
                      const std::function<void(uint64_t done, uint64_t all)>& progress) {
  const TokenId bos = engine.model().tokenizer().special().bos;
  const int64_t context = std::min(engine.context(), kSampleContext);
  if (tokens.size() + (bos >= 0 ? 1 : 0) < 2 || context < 2) {
    throw Error(ErrorCode::kInvalidArgument, "text", "there is nothing to score in it");
  }
  const TextWindows windows(tokens, bos, context);
  Foresight result;
  double nll = 0;
  uint64_t done = 0;
  DenseSelector dense;
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    ForAllLogits(engine.pass(), engine.kv_pool(), window, dense, nullptr,
                 [&](size_t position, std::span<const float> logits) {
                   if (progress) progress(++done, windows.total_tokens());
                   if (position + 1 == window.size()) return;
                   nll += NegativeLogLikelihood(logits, window[position + 1]);
                   result.likeliest.push_back(LikeliestToken(logits));
                 });
  }
  if (!std::isfinite(nll)) {
    throw Error(ErrorCode::kCorrupt, engine.model().path(), "its logits are not numbers");
  }
  result.score.tokens = static_cast<int64_t>(result.likeliest.size());
  result.score.nll_per_token = nll / static_cast<double>(result.score.tokens);
  return result;
}

double AgreementOf(const Foresight& a, const Foresight& b) {
  if (a.likeliest.size() != b.likeliest.size() || a.likeliest.empty()) {
    throw Error(ErrorCode::kInternal, "AgreementOf", "scores of different texts");
  }
  size_t same = 0;
  for (size_t i = 0; i < a.likeliest.size(); ++i) same += a.likeliest[i] == b.likeliest[i] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(a.likeliest.size());
}

}  // namespace hearth
