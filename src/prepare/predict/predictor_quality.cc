#include "prepare/predict/predictor_quality.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"

namespace hearth {
namespace {

// Lets the model compute all neurons and compares the selector's lists with what comes out.
class ListChecker : public ActivationSelector, public PassObserver {
 public:
  ListChecker(ActivationSelector& selector, std::vector<ListQuality>& layers)
      : selector_(selector), layers_(layers) {}

  void Select(const SelectionQuery& query, ActiveSets& out) override {
    selector_.Select(query, sets_);
    out.SetAll();
  }

  void OnFfnActivation(int64_t layer, int64_t, std::span<const int64_t>,
                       FloatView activation) override {
    ListQuality& q = layers_[static_cast<size_t>(layer)];
    for (int64_t t = 0; t < activation.rows; ++t) {
      const float* a = activation.row(t);
      q.neurons += static_cast<uint64_t>(activation.cols);
      for (int64_t n = 0; n < activation.cols; ++n) {
        q.active += a[n] != 0 ? 1 : 0;
        q.mass += std::abs(static_cast<double>(a[n]));
      }
      if (sets_.all()) continue;
      for (const int32_t n : sets_.lists()[static_cast<size_t>(t)]) {
        ++q.listed;
        q.found += a[n] != 0 ? 1 : 0;
        q.found_mass += std::abs(static_cast<double>(a[n]));
      }
    }
    if (sets_.all()) AddAll(q, activation);
  }

 private:
  static void AddAll(ListQuality& q, FloatView activation) {
    for (int64_t t = 0; t < activation.rows; ++t) {
      for (int64_t n = 0; n < activation.cols; ++n) {
        const float a = activation.row(t)[n];
        ++q.listed;
        q.found += a != 0 ? 1 : 0;
        q.found_mass += std::abs(static_cast<double>(a));
      }
    }
  }

  ActivationSelector& selector_;
  std::vector<ListQuality>& layers_;
  ActiveSets sets_;
};

// What the logits after a token say.
struct RowScore {
  TokenId likeliest = 0;
  double nll = 0;  // of the token that follows
};

// The two models with a cache each.
class SideBySide {
 public:
  SideBySide(Engine& engine, ActivationSelector& selector, PredictionQuality& quality)
      : engine_(engine),
        selector_(selector),
        quality_(quality),
        checker_(selector, quality.layers) {}

  void Window(std::span<const TokenId> window) {
    dense_.clear();
    predicted_.clear();
    Pass(window, checker_, &checker_, dense_);
    Pass(window, selector_, nullptr, predicted_);
    for (size_t i = 0; i < dense_.size(); ++i) {
      quality_.dense_nll += dense_[i].nll;
      quality_.predicted_nll += predicted_[i].nll;
      quality_.top1_agreement += dense_[i].likeliest == predicted_[i].likeliest ? 1 : 0;
    }
    quality_.tokens += static_cast<int64_t>(dense_.size());
  }

 private:
  void Pass(std::span<const TokenId> window, ActivationSelector& selector, PassObserver* observer,
            std::vector<RowScore>& scores) {
    ForAllLogits(engine_.pass(), engine_.kv_pool(), window, selector, observer,
                 [&](size_t position, std::span<const float> logits) {
                   if (position + 1 == window.size()) return;
                   scores.push_back({LikeliestToken(logits),
                                     NegativeLogLikelihood(logits, window[position + 1])});
                 });
  }

  Engine& engine_;
  ActivationSelector& selector_;
  PredictionQuality& quality_;
  ListChecker checker_;
  std::vector<RowScore> dense_, predicted_;
};

}  // namespace

void ListQuality::Add(const ListQuality& other) {
  neurons += other.neurons;
  active += other.active;
  listed += other.listed;
  found += other.found;
  mass += other.mass;
  found_mass += other.found_mass;
}

ListQuality PredictionQuality::Total() const {
  ListQuality total;
  for (const ListQuality& layer : layers) total.Add(layer);
  return total;
}

double PredictionQuality::perplexity_ratio() const { return std::exp(predicted_nll - dense_nll); }

PredictionQuality MeasurePrediction(Engine& engine, std::span<const TokenId> tokens,
                                    ActivationSelector& selector,
                                    const QualityProgressFn& progress) {
  const TokenId bos = engine.model().tokenizer().special().bos;
  const size_t extra = bos >= 0 ? 1 : 0;
  if (engine.context() < 2 || tokens.size() + extra < 2) {
    throw Error(ErrorCode::kInvalidArgument, "predictors", "there is no text to try them on");
  }
  PredictionQuality quality;
  quality.layers.resize(static_cast<size_t>(engine.model().spec().num_layers));
  SideBySide models(engine, selector, quality);
  const TextWindows windows(tokens, bos, engine.context());
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    if (window.size() > 1) models.Window(window);
    if (progress) progress(i + 1, windows.size());
  }
  const auto scored = static_cast<double>(std::max<int64_t>(quality.tokens, 1));
  quality.dense_nll /= scored;
  quality.predicted_nll /= scored;
  quality.top1_agreement /= scored;
  return quality;
}

}  // namespace hearth
