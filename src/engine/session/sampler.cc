#include "engine/session/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

void CheckRange(const char* field, float value, float low, float high) {
  if (!(value >= low && value <= high)) {
    throw Error(ErrorCode::kInvalidArgument, Field{field}, "value",
                fmt::format("{} to {}", low, high), fmt::format("{}", value));
  }
}

}  // namespace

void ValidateSampling(const SamplingOptions& options) {
  CheckRange("temperature", options.temperature, 0, 100);
  CheckRange("top_k", static_cast<float>(options.top_k), 0, 1e9f);
  CheckRange("top_p", options.top_p, 0, 1);
  CheckRange("min_p", options.min_p, 0, 1);
  CheckRange("repetition_penalty", options.repetition_penalty, 0.01f, 100);
  CheckRange("repetition_window", static_cast<float>(options.repetition_window), -1, 1e9f);
  CheckRange("frequency_penalty", options.frequency_penalty, -100, 100);
  CheckRange("presence_penalty", options.presence_penalty, -100, 100);
  for (const auto& [id, bias] : options.logit_bias) {
    if (std::isfinite(bias) || bias == -INFINITY) continue;
    throw Error(ErrorCode::kInvalidArgument, Field{"logit_bias"},
                "value of token " + std::to_string(id), "a finite number or -inf",
                fmt::format("{}", bias));
  }
}

Sampler::Sampler(SamplingOptions options) : options_(std::move(options)), random_(options_.seed) {
  ValidateSampling(options_);
}

TokenId Sampler::Sample(std::span<const float> logits, std::span<const TokenId> history,
                        size_t generated, const TokenMask* allowed) {
  ReadLogits(logits);
  if (allowed != nullptr) Forbid(*allowed);
  ApplyPenalties(history, generated);
  if (options_.temperature == 0) {
    const auto best =
        std::max_element(candidates_.begin(), candidates_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.value < b.value; });
    RefuseForbidden(*best);
    return best->id;
  }
  KeepTopK();
  RefuseForbidden(candidates_.front());
  ToProbabilities();
  KeepTopPAndMinP();
  float sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.value;
  // 53 random bits, so that the draw is the same with every standard library.
  const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
  double left = draw * static_cast<double>(sum);
  for (const Candidate& candidate : candidates_) {
    left -= static_cast<double>(candidate.value);
    if (left < 0) return candidate.id;
  }
  return candidates_.front().id;  // rounding left nothing over: the most likely one
}

void Sampler::ReadLogits(std::span<const float> logits) {
  bool any_finite = false, all_numbers = true;
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    any_finite = any_finite || std::isfinite(logits[i]);
    all_numbers = all_numbers && !std::isnan(logits[i]);
    candidates_[i] = {static_cast<TokenId>(i), logits[i]};
  }
  // What a damaged model computed is not to be trusted where it is a number either.
  if (!any_finite || !all_numbers) {
    throw Error(ErrorCode::kCorrupt, "model", "its logits are not numbers");
  }
}

void Sampler::Forbid(const TokenMask& allowed) {
  for (Candidate& candidate : candidates_) {
    if (!IsAllowed(allowed, candidate.id)) candidate.value = -INFINITY;
  }
}

void Sampler::RefuseForbidden(const Candidate& best) {
  if (best.value > -INFINITY) return;
  throw Error(ErrorCode::kInvalidArgument, Field{"logit_bias"}, "it leaves no token to choose");
}

void Sampler::ApplyPenalties(std::span<const TokenId> history, size_t generated) {
  for (const auto& [id, bias] : options_.logit_bias) {
    if (id >= 0 && static_cast<size_t>(id) < candidates_.size()) {
      float& value = candidates_[static_cast<size_t>(id)].value;
      value = bias == -INFINITY ? bias : value + bias;  // also where the logit is +inf
    }
  }
  if (options_.repetition_penalty != 1) {
    const size_t window = options_.repetition_window < 0
                              ? history.size()
                              : static_cast<size_t>(options_.repetition_window);
    std::vector<TokenId> recent(
        history.end() - static_cast<ptrdiff_t>(std::min(window, history.size())), history.end());
    std::sort(recent.begin(), recent.end());
    recent.erase(std::unique(recent.begin(), recent.end()), recent.end());
    for (const TokenId id : recent) {
      if (static_cast<size_t>(id) >= candidates_.size()) continue;
      float& value = candidates_[static_cast<size_t>(id)].value;
      value = value > 0 ? value / options_.repetition_penalty : value * options_.repetition_penalty;
    }
  }
  if (options_.frequency_penalty != 0 || options_.presence_penalty != 0) {
    std::map<TokenId, int> counts;
    for (const TokenId id : history.last(std::min(generated, history.size()))) ++counts[id];
    for (const auto& [id, count] : counts) {
      if (static_cast<size_t>(id) >= candidates_.size()) continue;
      candidates_[static_cast<size_t>(id)].value -=
          options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
    }
  }
}

void Sampler::KeepTopK() {
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  };
  const auto k = static_cast<size_t>(options_.top_k);
  if (k > 0 && k < candidates_.size()) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k),
                      candidates_.end(), more_likely);
    candidates_.resize(k);
  } else {
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
  }
}

void Sampler::ToProbabilities() {
  const float best = candidates_.front().value;
  double sum = 0;
  for (Candidate& candidate : candidates_) {
    // Equals of the best one by name: infinity less infinity is no number.
    const bool is_best = candidate.value == best;
    candidate.value = is_best ? 1 : std::exp((candidate.value - best) / options_.temperature);
    sum += static_cast<double>(candidate.value);
  }
  for (Candidate& candidate : candidates_) {
    candidate.value = static_cast<float>(static_cast<double>(candidate.value) / sum);
  }
}

void Sampler::KeepTopPAndMinP() {
  double reached = 0;
  size_t keep = 0;
  const float floor = options_.min_p * candidates_.front().value;
  while (keep < candidates_.size() && reached < static_cast<double>(options_.top_p) &&
         candidates_[keep].value >= floor) {
    reached += static_cast<double>(candidates_[keep].value);
    ++keep;
  }
  candidates_.resize(std::max<size_t>(keep, 1));
}

}  // namespace hearth
