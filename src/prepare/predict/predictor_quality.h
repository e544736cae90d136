// What predictors cost a model in quality, and what they save: the dense and the predicted model
// read the same text side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "sparsity/selector.h"

namespace hearth {

// How the lists of one layer (or of all) compare with what was active on the dense model's path.
struct ListQuality {
  uint64_t neurons = 0;   // looked at, a token at a time
  uint64_t active = 0;    // whose product is not zero
  uint64_t listed = 0;    // that the selector named
  uint64_t found = 0;     // both
  double mass = 0;        // sum of |product|
  double found_mass = 0;  // of those listed

  void Add(const ListQuality& other);
  double active_share() const { return Ratio(active, neurons); }
  double computed_share() const { return Ratio(listed, neurons); }
  double precision() const { return Ratio(found, listed); }           // by count
  double recall() const { return mass > 0 ? found_mass / mass : 1; }  // by mass

 private:
  static double Ratio(uint64_t part, uint64_t of) {
    return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0;
  }
};

struct PredictionQuality {
  int64_t tokens = 0;    // scored
  double dense_nll = 0;  // nats per token
  double predicted_nll = 0;
  double top1_agreement = 0;  // share of positions where both models' likeliest token is the same
  std::vector<ListQuality> layers;

  ListQuality Total() const;
  double perplexity_ratio() const;  // predicted over dense
};

// Called with windows of the text done and in all.
using QualityProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// Reads `tokens` (a text without BOS) in windows (engine/session/text_windows.h), each window once
// with all neurons and once with those that `selector` names. The selector is asked on both paths.
// Throws Error(kInvalidArgument) for a text with nothing to score.
PredictionQuality MeasurePrediction(Engine& engine, std::span<const TokenId> tokens,
                                    ActivationSelector& selector,
                                    const QualityProgressFn& progress = {});

}  // namespace hearth
