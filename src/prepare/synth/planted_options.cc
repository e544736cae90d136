#include "prepare/synth/planted_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "prepare/synth/planted_fit.h"
#include "sparsity/profile_stats.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

constexpr double kDefaultActive = 0.10;
constexpr double kDefaultSkew = 0.28;
constexpr int64_t kDefaultRank = 256;

// Measured on the topic walk: with the default skew, medium has a two-queue cache that holds half
// of the neurons miss 3.5% of the active ones per token on average and 19% at P99, as P2 section
// 7.2.4 reports of TurboSparse-Mixtral.
double TopicShareOf(Locality locality) {
  switch (locality) {
    case Locality::kHigh:
      return 0.93;
    case Locality::kMedium:
    case Locality::kMeasured:  // where neurons are not fitted
      return 0.80;
    case Locality::kLow:
      return 0.30;
  }
  return 0;
}

// With it the experts that tokens choose resemble those of real models: planted_router_test.cc.
double RouterTopicShareOf(Locality locality) {
  switch (locality) {
    case Locality::kHigh:
      return 0.65;
    case Locality::kMedium:
    case Locality::kMeasured:  // the model that was measured has no experts
      return 0.42;
    case Locality::kLow:
      return 0.15;
  }
  return 0;
}

// The share of entries that hold kHotShare of the sum.
double SkewOf(const std::vector<double>& rates) {
  double sum = 0;
  for (const double rate : rates) sum += rate;
  double first = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    if (first + rates[i] >= kHotShare * sum) {
      // Part of an entry, so that skew is continuous in the exponent.
      return (static_cast<double>(i) + (kHotShare * sum - first) / rates[i]) /
             static_cast<double>(rates.size());
    }
    first += rates[i];
  }
  return 1;
}

// min(kMaxRate, scale * place^-exponent), scaled to the mean; places in (0, 1).
std::vector<double> RatesOf(int64_t n, double mean, double exponent) {
  std::vector<double> powers(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    powers[static_cast<size_t>(i)] =
        std::pow((static_cast<double>(i) + 0.5) / static_cast<double>(n), -exponent);
  }
  double low = 0, high = kMaxRate;  // no place is above 1: with `high` all would be at the maximum
  for (int step = 0; step < 60; ++step) {
    const double scale = (low + high) / 2;
    double sum = 0;
    for (const double power : powers) sum += std::min(kMaxRate, scale * power);
    (sum > mean * static_cast<double>(n) ? high : low) = scale;
  }
  for (double& power : powers) power = std::min(kMaxRate, low * power);
  return powers;
}

void CheckShare(const char* field, double value, double least, double greatest) {
  if (value >= least && value <= greatest) return;  // false for NaN
  throw Error(ErrorCode::kInvalidArgument, Field{field}, "share of the neurons",
              fmt::format("{:.3g} to {:.3g}", least, greatest), fmt::format("{:.3g}", value));
}

int64_t DecideRank(const ModelShape& shape, std::optional<int64_t> wanted) {
  // Half of the width remains for what tells tokens apart and fires no neuron.
  const int64_t most = shape.hidden_size / 2 / 32 * 32;
  if (!wanted) return std::clamp<int64_t>(shape.hidden_size / 4, 1, kDefaultRank);
  if (*wanted < 32 || *wanted > most || *wanted % 32 != 0) {
    throw Error(ErrorCode::kInvalidArgument, Field{"rank"}, "directions per layer",
                fmt::format("a multiple of 32 up to {} (half of the width)", most),
                fmt::format("{}", *wanted));
  }
  return *wanted;
}

// A trace says what the flags would, and must be of something that the shape has.
void CheckLike(const ModelShape& shape, const PlantedOptions& options) {
  if (!options.like) return;
  const bool is_neurons = options.like->unit == AccessUnit::kNeurons;
  if (is_neurons ? !PlantsNeurons(shape) : !PlantsRouter(shape)) {
    throw Error(ErrorCode::kInvalidArgument, Field{"like"},
                is_neurons ? "a trace of neurons, and those of this shape are never zero"
                           : "a trace of experts, and this shape has none");
  }
  if (options.locality || (is_neurons && (options.active || options.skew))) {
    throw Error(ErrorCode::kInvalidArgument, Field{"like"},
                "the trace says how many are active, how unevenly and for how long: leave out "
                "--active, --skew and --locality");
  }
}

// What the fit of neurons is to show; nothing where the locality is a plain one.
std::optional<FitRequest> RequestOf(const PlantedOptions& options, const PlantedShares& shares) {
  if (options.like && options.like->unit == AccessUnit::kNeurons) {
    return FitRequest{options.like->figures, shares.gate, options.like->tokens};
  }
  if (options.locality != Locality::kMeasured) return std::nullopt;
  AccessFigures wanted = kMeasuredFigures;
  wanted.active = shares.active;
  wanted.hot_share = options.skew.value_or(wanted.hot_share);
  return FitRequest{wanted, shares.gate, kMostFitTokens};
}

void DecideNeurons(const ModelShape& shape, const PlantedOptions& options, PlantedShares* shares) {
  const bool is_drelu = shape.activation == FfnActivation::kDRelu;
  if (!is_drelu && options.gate) {
    throw Error(ErrorCode::kInvalidArgument, Field{"gate"},
                fmt::format("with {} a neuron is active where its gate fires: leave it out",
                            FfnActivationName(shape.activation)));
  }
  const bool is_like = options.like && options.like->unit == AccessUnit::kNeurons;
  const double active = is_like ? options.like->figures.active : kDefaultActive;
  shares->active = options.active.value_or(active);
  CheckShare("active", shares->active, 0.005, 0.7);
  shares->gate =
      options.gate.value_or(is_drelu ? std::min(2 * shares->active, 0.9) : shares->active);
  CheckShare("gate", shares->gate, shares->active, 0.9);
  const SkewRange range = SkewRangeOf(shares->active);
  shares->skew = options.skew.value_or(std::max(kDefaultSkew, range.least));
  CheckShare("skew", shares->skew, range.least, range.greatest);
  shares->rank = DecideRank(shape, options.rank);
  const std::optional<FitRequest> request = RequestOf(options, *shares);
  if (!request) return;
  const PlantedFit fit = FitNeurons(shape, *request);
  shares->skew = fit.skew;
  shares->topic_share = fit.topic_share;
  shares->reached = fit.reached;
}

}  // namespace

const char* LocalityName(Locality locality) {
  switch (locality) {
    case Locality::kHigh:
      return "high";
    case Locality::kMedium:
      return "medium";
    case Locality::kLow:
      return "low";
    case Locality::kMeasured:
      return "measured";
  }
  return "?";
}

std::optional<Locality> LocalityFromName(std::string_view name) {
  for (const Locality locality :
       {Locality::kHigh, Locality::kMedium, Locality::kLow, Locality::kMeasured}) {
    if (name == LocalityName(locality)) return locality;
  }
  return std::nullopt;
}

SkewRange SkewRangeOf(double mean) {
  // From as many of the highest rate as the mean allows, to all alike. A little is left for the
  // shape to remain a power law.
  return {std::min(1.05 * kHotShare * mean / kMaxRate, kHotShare), kHotShare};
}

std::vector<double> PowerLawRates(int64_t n, double mean, double skew) {
  double low = 0, high = 16;  // exponents; a higher one makes skew smaller
  for (int step = 0; step < 40; ++step) {
    const double exponent = (low + high) / 2;
    (SkewOf(RatesOf(n, mean, exponent)) > skew ? low : high) = exponent;
  }
  return RatesOf(n, mean, low);
}

std::vector<double> PlantedGateRates(const std::vector<double>& active, double mean, double skew) {
  std::vector<double> rates = PowerLawRates(static_cast<int64_t>(active.size()), mean,
                                            std::max(skew, SkewRangeOf(mean).least));
  for (size_t i = 0; i < rates.size(); ++i) rates[i] = std::max(rates[i], active[i]);
  return rates;
}

RecordedFigures RecordedFrom(const AccessSequence& sequence) {
  if (sequence.unit == AccessUnit::kNeurons && sequence.num_experts > 1) {
    throw Error(ErrorCode::kUnsupported, sequence.model_name,
                "its trace is of neurons in experts, which follow both: --like takes a trace of a "
                "model without experts, or of experts alone");
  }
  return {sequence.unit, FiguresOf(sequence), sequence.num_passes()};
}

PlantedShares DecideShares(const ModelShape& shape, const PlantedOptions& options) {
  CheckLike(shape, options);
  const Locality locality = options.locality.value_or(Locality::kMedium);
  PlantedShares shares;
  shares.topic_share = TopicShareOf(locality);
  shares.router_topic_share = RouterTopicShareOf(locality);
  if (PlantsNeurons(shape)) {
    DecideNeurons(shape, options, &shares);
  } else if (options.active || options.gate || options.skew || options.rank ||
             !PlantsRouter(shape)) {
    throw Error(ErrorCode::kInvalidArgument, shape.name,
                "sparsity cannot be planted where the activation is silu, which is never zero");
  } else if (locality == Locality::kMeasured) {
    throw Error(ErrorCode::kInvalidArgument, Field{"locality"},
                "measured is of neurons, and those of this shape are never zero");
  }
  if (options.like && options.like->unit == AccessUnit::kExperts) {
    const PlantedFit fit =
        FitRouter(shape, {.wanted = options.like->figures, .tokens = options.like->tokens});
    shares.router_bias = fit.skew;
    shares.router_topic_share = fit.topic_share;
    shares.reached = fit.reached;
  }
  return shares;
}

}  // namespace hearth
