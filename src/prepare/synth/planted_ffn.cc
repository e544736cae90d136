#include "prepare/synth/planted_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random_words.h"
#include "prepare/pack/ordered_work.h"

namespace hearth {
namespace {

// Entries of rho_j, and of what an up row has besides. Few, because a row takes as many passes over
// a direction; enough that a weighted sum of them is spread like a normal number.
constexpr int64_t kGateEntries = 16;
constexpr int64_t kUpEntries = 8;

// A predictor's own part, and how it is set: it names this many times as many neurons as are
// active, which is 1 / precision where it finds all, and its noise is what leaves the wished share
// of them unfound. Measured by running models (planted_predictor_test.cc): recall of activation
// mass 0.98 to 0.99 at a precision of 0.7 to 0.8.
constexpr int64_t kNoiseEntries = 4;
constexpr double kNamedPerActive = 1.35;
constexpr float kReluNoise = 0.28f;  // where the spread among tokens is 1
constexpr float kDReluNoise = 0.42f;
// What fires both gate and up is told best by their sum, the up row's threshold being the higher.
constexpr float kGateInPredictor = 0.3f;
constexpr float kUpInPredictor = 0.7f;

// Of the router's logits, as that of random routers.
constexpr double kPlantedLogitStd = 2;

constexpr int64_t kSamples = 2048;  // tokens by which thresholds are set

// Mean square that a norm's weights, spread about 1 by this, add to the directions.
constexpr double kNormSpread = 0.05;

constexpr uint64_t kNeuronStream = uint64_t{1} << 60;
constexpr uint64_t kOrderStream = uint64_t{1} << 61;

// Mean square of what rounding changes of normal weights, relative to them.
double RoundingEnergyOf(DType quant) {
  switch (quant) {
    case DType::kQ4_0:
    case DType::kQ4_1:
      return 0.0065;
    case DType::kQ8_0:
      return 2e-5;
    default:
      return 0;
  }
}

// Directions that only predictors look along: half as many as neurons do, and as many more as make
// whole blocks of 32.
int64_t NoiseDirections(int64_t rank) { return (rank + rank / 2 + 31) / 32 * 32 - rank; }

// Symmetrical about 0; only relative sizes matter.
float NextWeight(RandomWords& random) {
  return static_cast<float>(random.NextUnit() + random.NextUnit() - 1);
}

template <typename Entries>
void AddDirections(const PlantedBasis& basis, const Entries& entries, float scale, float* out) {
  for (size_t i = 0; i < entries.weight.size(); ++i) {
    AddScaled(scale * entries.weight[i], basis.Direction(entries.direction[i]), basis.hidden, out);
  }
}

}  // namespace

// The random part of a neuron: entries (direction, weight) of rho, of the up row's own part, and of
// the predictor's, which are unit vectors.
struct PlantedModel::Draw {
  template <int64_t kCount>
  struct Entries {
    std::array<int32_t, kCount> direction;
    std::array<float, kCount> weight;
  };
  Entries<kGateEntries> gate;
  Entries<kUpEntries> up;
  Entries<kNoiseEntries> noise;
};

// Tokens of a layer in its directions. Sample n is of topic n % topics.
struct PlantedModel::Samples {
  int64_t num_topics;
  std::vector<float> topics;  // [directions][topics], variance topic_share
  std::vector<float> tokens;  // [directions][kSamples], variance 1 - topic_share and disturbances
};

// Where the products of a neuron fire, in units of b (planted_space.h).
struct PlantedModel::Cuts {
  float gate = 0;
  float up = 0;
  float predictor = 0;
};

// Products of one neuron's rows with all samples; scratch that is used again for the next.
class PlantedModel::Projector {
 public:
  explicit Projector(const Samples& samples)
      : samples_(samples), of_topics_(static_cast<size_t>(samples.num_topics)) {}

  // values += scale * (entries . sample).
  template <typename Entries>
  void Add(const Entries& entries, float scale, std::vector<float>& values) {
    const int64_t topics = samples_.num_topics;
    std::fill(of_topics_.begin(), of_topics_.end(), 0.0f);
    for (size_t i = 0; i < entries.weight.size(); ++i) {
      const int64_t direction = entries.direction[i];
      const float weight = scale * entries.weight[i];
      AddScaled(weight, samples_.topics.data() + direction * topics, topics, of_topics_.data());
      AddScaled(weight, samples_.tokens.data() + direction * kSamples, kSamples, values.data());
    }
    for (int64_t n = 0; n < kSamples; n += topics) {
      AddScaled(1, of_topics_.data(), std::min(topics, kSamples - n), values.data() + n);
    }
  }

  // Of the last neuron.
  std::vector<float> gate = std::vector<float>(kSamples);
  std::vector<float> up = std::vector<float>(kSamples);
  std::vector<float> logit = std::vector<float>(kSamples);
  std::vector<float> sorted;  // scratch

 private:
  const Samples& samples_;
  std::vector<float> of_topics_;
};

PlantedModel::PlantedModel(const ModelShape& shape, const PlantedOptions& options, DType quant,
                           uint64_t seed, bool predictors)
    : shares_(DecideShares(shape, options)),
      is_drelu_(shape.activation == FfnActivation::kDRelu),
      has_predictors_(predictors && PlantsNeurons(shape)),
      threshold_(shape.threshold),
      layers_(shape.num_layers),
      experts_(std::max<int64_t>(shape.num_experts, 1)),
      neurons_(shape.intermediate_size),
      rounding_energy_(RoundingEnergyOf(quant)),
      seed_(seed),
      space_(PlantedTopics(shape, seed), shape.hidden_size,
             shares_.rank + (has_predictors_ ? NoiseDirections(shares_.rank) : 0),
             {.mean = shares_.topic_share,
              .router = shares_.router_topic_share,
              .has_routers = PlantsRouter(shape)}) {
  if (space_.directions() >= shape.hidden_size) {
    throw Error(
        ErrorCode::kInvalidArgument, shape.name, "hidden_size",
        fmt::format("more than the {} directions that sparsity is planted in", space_.directions()),
        fmt::format("{}", shape.hidden_size));
  }
  if (!plants_neurons()) return;
  active_rates_ = PowerLawRates(neurons_, shares_.active, shares_.skew);
  gate_rates_ = PlantedGateRates(active_rates_, shares_.gate, shares_.skew);
  MeasureActivation();
}

PlantedModel::Draw PlantedModel::DrawNeuron(int64_t layer, int64_t expert, int64_t neuron) const {
  RandomWords random(StreamOf(seed_,
                              kNeuronStream + static_cast<uint64_t>(layer * experts_ + expert),
                              static_cast<uint64_t>(neuron)));
  Draw draw;
  const auto fill = [&](auto& entries, int64_t first, int64_t directions) {
    double squares = 0;
    for (size_t i = 0; i < entries.weight.size(); ++i) {
      entries.direction[i] = static_cast<int32_t>(
          first + static_cast<int64_t>(random.NextBelow(static_cast<uint64_t>(directions))));
      entries.weight[i] = NextWeight(random);
      squares += static_cast<double>(entries.weight[i] * entries.weight[i]);
    }
    const auto scale = static_cast<float>(1 / std::sqrt(squares));
    for (float& weight : entries.weight) weight *= scale;
  };
  fill(draw.gate, 0, shares_.rank);
  fill(draw.up, 0, shares_.rank);
  if (has_predictors_) fill(draw.noise, shares_.rank, space_.directions() - shares_.rank);
  return draw;
}

std::vector<int32_t> PlantedModel::ShuffledPlaces(int64_t layer, int64_t expert) const {
  RandomWords random(
      StreamOf(seed_, kOrderStream, static_cast<uint64_t>(layer * experts_ + expert)));
  std::vector<int32_t> places(static_cast<size_t>(neurons_));
  std::iota(places.begin(), places.end(), 0);
  for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.NextBelow(i)]);
  return places;
}

// What else moves a neuron's product, relative to the variance among tokens: rounding of its row
// and of the embedding, weights of the norm, and what the layers before have added. Each is
// random in sign; together they only widen the distribution that thresholds are set for.
double PlantedModel::RoundingVariance(int64_t layer) const {
  const double depth = (static_cast<double>(layer) + 0.5) / static_cast<double>(layers_);
  return (2 * rounding_energy_ + kNormSpread * kNormSpread + kBranchEnergy * depth) /
         (1 - kCommonShare);
}

PlantedModel::Samples PlantedModel::SamplesOf(int64_t layer) const {
  const std::shared_ptr<const PlantedBasis> basis = space_.BasisOf(layer);
  Samples samples{.num_topics = space_.topics().topics, .topics = space_.TopicsIn(*basis)};
  samples.tokens.resize(static_cast<size_t>(space_.directions() * kSamples));
  space_.Normals(PlantedSpace::Purpose::kSample, static_cast<uint64_t>(layer),
                 space_.directions() * kSamples, samples.tokens.data());
  const auto of_token =
      static_cast<float>(std::sqrt(1 - space_.topic_share() + RoundingVariance(layer)));
  for (float& value : samples.tokens) value *= of_token;
  return samples;
}

// Leaves the products of all samples in the projector.
PlantedModel::Cuts PlantedModel::CutsOf(Projector& projector, const Draw& draw,
                                        int64_t place) const {
  std::vector<float>&gate = projector.gate, &up = projector.up, &logit = projector.logit,
  &sorted = projector.sorted;
  const double gate_rate = gate_rates_[static_cast<size_t>(place)];
  const double active_rate = active_rates_[static_cast<size_t>(place)];
  Cuts cuts;
  std::fill(gate.begin(), gate.end(), 0.0f);
  projector.Add(draw.gate, 1, gate);
  sorted.assign(gate.begin(), gate.end());
  cuts.gate = CutOf(sorted, gate_rate);
  if (is_drelu_) {
    for (size_t n = 0; n < up.size(); ++n) up[n] = kUpCorrelation * gate[n];
    projector.Add(draw.up, kUpOwnPart, up);
    sorted.clear();
    for (size_t n = 0; n < up.size(); ++n) {
      if (gate[n] > cuts.gate) sorted.push_back(up[n]);
    }
    if (sorted.empty()) sorted.push_back(cuts.gate);
    cuts.up = CutOf(sorted, active_rate / gate_rate);
  }
  if (has_predictors_) {
    for (size_t n = 0; n < logit.size(); ++n) {
      logit[n] = is_drelu_ ? kGateInPredictor * gate[n] + kUpInPredictor * up[n] : gate[n];
    }
    projector.Add(draw.noise, is_drelu_ ? kDReluNoise : kReluNoise, logit);
    sorted.assign(logit.begin(), logit.end());
    cuts.predictor = CutOf(sorted, std::min(1.0, kNamedPerActive * active_rate));
  }
  return cuts;
}

void PlantedModel::CalibrateLayer(int64_t layer) {
  const Samples samples = SamplesOf(layer);
  Projector projector(samples);
  // Products are b * y - c * a * sqrt(hidden), and fire above the activation's threshold.
  const double b = std::sqrt(1 - kCommonShare);
  const double along_u = std::sqrt(kCommonShare * static_cast<double>(space_.hidden()));
  for (int64_t expert = 0; expert < experts_; ++expert) {
    PlantedFfn& ffn = ffns_[static_cast<size_t>(layer * experts_ + expert)];
    ffn.place = ShuffledPlaces(layer, expert);
    for (size_t j = 0; j < ffn.place.size(); ++j) {
      const Cuts cuts =
          CutsOf(projector, DrawNeuron(layer, expert, static_cast<int64_t>(j)), ffn.place[j]);
      ffn.gate_cut.push_back(
          static_cast<float>((b * static_cast<double>(cuts.gate) - threshold_) / along_u));
      if (is_drelu_) {
        ffn.up_cut.push_back(static_cast<float>(b * static_cast<double>(cuts.up) / along_u));
      }
      if (has_predictors_) {
        ffn.predictor_bias.push_back(static_cast<float>(-b * static_cast<double>(cuts.predictor)));
      }
    }
  }
}

void PlantedModel::MeasureActivation() {
  const Samples samples = SamplesOf(0);
  Projector projector(samples);
  const double b = std::sqrt(1 - kCommonShare);
  constexpr int64_t kNeurons = 256;  // looked at
  const int64_t step = std::max<int64_t>(1, neurons_ / kNeurons);
  double squares = 0;
  int64_t count = 0;
  for (int64_t place = 0; place < neurons_; place += step) {
    // Which neuron has the place does not matter.
    const Cuts cuts = CutsOf(projector, DrawNeuron(0, 0, place), place);
    for (size_t n = 0; n < projector.gate.size(); ++n, ++count) {
      const double gate = b * static_cast<double>(projector.gate[n] - cuts.gate);
      // A random up row's product is normal with variance 1 whatever the gate says.
      const double up = is_drelu_ ? b * static_cast<double>(projector.up[n] - cuts.up) : 1;
      if (gate > 0 && up > 0) squares += gate * gate * up * up;
    }
  }
  activation_rms_ = std::sqrt(squares / static_cast<double>(count));
}

void PlantedModel::Calibrate(WorkerTeam& team, const std::function<void()>& between) {
  if (!plants_neurons()) return;
  ffns_.assign(static_cast<size_t>(layers_ * experts_), {});
  RunPieces(team, static_cast<size_t>(layers_), [&](int worker, size_t layer) {
    CalibrateLayer(static_cast<int64_t>(layer));
    if (worker == 0 && between) between();
  });
}

void PlantedModel::GateRow(const PlantedBasis& basis, int64_t layer, int64_t expert, int64_t neuron,
                           float* out) const {
  const Draw draw = DrawNeuron(layer, expert, neuron);
  const float cut = Ffn(layer, expert).gate_cut[static_cast<size_t>(neuron)];
  for (int64_t i = 0; i < basis.hidden; ++i) out[i] = -cut * basis.u()[i];
  AddDirections(basis, draw.gate, 1, out);
}

void PlantedModel::UpRow(const PlantedBasis& basis, int64_t layer, int64_t expert, int64_t neuron,
                         float* out) const {
  const Draw draw = DrawNeuron(layer, expert, neuron);
  const float cut = Ffn(layer, expert).up_cut[static_cast<size_t>(neuron)];
  for (int64_t i = 0; i < basis.hidden; ++i) out[i] = -cut * basis.u()[i];
  AddDirections(basis, draw.gate, kUpCorrelation, out);
  AddDirections(basis, draw.up, kUpOwnPart, out);
}

void PlantedModel::RouterRow(int64_t layer, int64_t expert, float* out) const {
  float bias = 0;
  space_.Normals(PlantedSpace::Purpose::kRouterBias,
                 static_cast<uint64_t>(layer * experts_ + expert), 1, &bias);
  const double std = kPlantedLogitStd / std::sqrt(1 + shares_.router_bias * shares_.router_bias);
  space_.RouterRow(layer, experts_, expert, shares_.router_bias * std * static_cast<double>(bias),
                   std, out);
}

void PlantedModel::PredictorRow(int64_t layer, int64_t expert, int64_t neuron, float* out) const {
  const Draw draw = DrawNeuron(layer, expert, neuron);
  std::fill(out, out + space_.directions(), 0.0f);
  const auto add = [out](const auto& entries, float scale) {
    for (size_t i = 0; i < entries.weight.size(); ++i) {
      out[entries.direction[i]] += scale * entries.weight[i];
    }
  };
  add(draw.gate, is_drelu_ ? kGateInPredictor + kUpInPredictor * kUpCorrelation : 1);
  if (is_drelu_) add(draw.up, kUpInPredictor * kUpOwnPart);
  add(draw.noise, is_drelu_ ? kDReluNoise : kReluNoise);
}

}  // namespace hearth
