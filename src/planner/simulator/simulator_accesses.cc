#include "planner/simulator/simulator_accesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "prepare/synth/planted_options.h"

namespace hearth {
namespace {

// Streams of random numbers that do not meet.
enum class SimStream : uint64_t {
  kWalk = 1,
  kNeuronTopic,
  kToken,
  kRouterBias,
  kRouterTopic,
  kRouterToken
};

uint64_t StreamFor(uint64_t seed, SimStream stream, uint64_t a, uint64_t b) {
  return StreamOf(StreamOf(seed, static_cast<uint64_t>(stream), 0), a, b);
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The inverse, by bisection: for tables that are made once.
double NormalQuantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (NormalCdf(middle) < p ? low : high) = middle;
  }
  return low;
}

// A standard normal number of a word (Box and Muller 1958).
double NormalOf(RandomWords& random) {
  constexpr double kPi = 3.14159265358979323846;
  const double radius = std::sqrt(-2 * std::log(1 - random.NextUnit()));
  return radius * std::cos(2 * kPi * random.NextUnit());
}

double HashedNormal(uint64_t stream) {
  RandomWords random(stream);
  return NormalOf(random);
}

// Chances of millions of neurons are drawn whenever the topic changes: from tables, in steps that
// do not show.
constexpr size_t kNormals = size_t{1} << 14;

// Quantiles of a standard normal number, at even distances.
std::vector<float> NormalTable() {
  std::vector<float> normals;
  normals.reserve(kNormals);
  for (size_t i = 0; i < kNormals; ++i) {
    normals.push_back(static_cast<float>(
        NormalQuantile((static_cast<double>(i) + 0.5) / static_cast<double>(kNormals))));
  }
  return normals;
}

// P(a standard normal number <= x) in 2^-32.
class ChanceTable {
 public:
  ChanceTable() {
    for (size_t i = 0; i < chances_.size(); ++i) {
      const double x = (static_cast<double>(i) + 0.5) / kSteps - kMost;
      chances_[i] = static_cast<uint32_t>(std::min(NormalCdf(x) * 0x1p32, 0x1p32 - 1));
    }
  }
  uint32_t At(float x) const {
    if (!(x > -kMost)) return 0;
    return chances_[std::min(static_cast<size_t>((x + kMost) * kSteps), chances_.size() - 1)];
  }

 private:
  static constexpr float kMost = 6;
  static constexpr float kSteps = 2048;  // per unit
  std::array<uint32_t, static_cast<size_t>(2 * kMost * kSteps)> chances_;
};

void CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::kInvalidArgument, Field{field}, "value",
              fmt::format("{} to {}", low, high), fmt::format("{}", value));
}

std::vector<float> ThresholdsOf(const std::vector<double>& rates) {
  std::vector<float> thresholds;
  double last_rate = -1;
  for (const double rate : rates) {
    if (rate == last_rate) {
      thresholds.push_back(thresholds.back());
    } else {
      thresholds.push_back(static_cast<float>(NormalQuantile(1 - std::clamp(rate, 0.0, kMaxRate))));
    }
    last_rate = rate;
  }
  return thresholds;
}

// Of the tokens that an FFN computes, those for which each neuron is active, descending.
std::vector<double> RatesOfProfile(const FfnProfile& ffn) {
  std::vector<double> rates;
  for (const uint64_t active : ffn.active) {
    rates.push_back(
        ffn.tokens == 0 ? 0 : static_cast<double>(active) / static_cast<double>(ffn.tokens));
  }
  std::sort(rates.rbegin(), rates.rend());
  return rates;
}

}  // namespace

SyntheticAccesses::SyntheticAccesses(const SimModel& model, const SyntheticOptions& options,
                                     const ModelProfile* profile)
    : model_(model),
      options_(options),
      ffns_(static_cast<size_t>(model.num_ffns())),
      walk_(StreamFor(options.seed, SimStream::kWalk, 0, 0)) {
  CheckRange("topic_share", options.topic_share, 0, 0.999);
  CheckRange("router_topic_share", options.router_topic_share, 0, 1);
  CheckRange("router_bias", options.router_bias, 0, 100);
  CheckRange("topic_stay", options.topic_stay, 1, 1e9);
  CheckRange("topics", static_cast<double>(options.topics), 1, 1e6);
  if (profile != nullptr) {
    if (profile->num_layers != model.num_layers || profile->ffns_per_layer() != model.num_experts ||
        profile->intermediate_size != model.neurons) {
      throw Error(ErrorCode::kInvalidArgument, Field{"profile"},
                  fmt::format("it is of {}, whose sizes are not those of {}",
                              Printable(profile->model_name), Printable(model.name)));
    }
    for (const FfnProfile& ffn : profile->ffns) {
      thresholds_.push_back(ThresholdsOf(RatesOfProfile(ffn)));
    }
  } else {
    CheckRange("active", options.active, 0.001, 0.7);
    const SkewRange range = SkewRangeOf(options.active);
    CheckRange("skew", options.skew, range.least, range.greatest);
    thresholds_.push_back(ThresholdsOf(PowerLawRates(model.neurons, options.active, options.skew)));
  }
  topic_ = static_cast<int64_t>(walk_.NextBelow(static_cast<uint64_t>(options.topics)));
}

// The logits: what is the expert's for all tokens, what is the topic's, what is the token's.
void SyntheticAccesses::ChooseExperts(int64_t layer, std::vector<int64_t>& experts) const {
  std::vector<std::pair<double, int64_t>> logits;
  for (int64_t e = 0; e < model_.num_experts; ++e) {
    const auto ffn = static_cast<uint64_t>(layer * model_.num_experts + e);
    const auto normal = [&](SimStream stream, int64_t of) {
      return HashedNormal(StreamFor(options_.seed, stream, ffn, static_cast<uint64_t>(of)));
    };
    const double share = options_.router_topic_share;
    logits.emplace_back(options_.router_bias * normal(SimStream::kRouterBias, 0) +
                            std::sqrt(share) * normal(SimStream::kRouterTopic, topic_) +
                            std::sqrt(1 - share) * normal(SimStream::kRouterToken, token_),
                        e);
  }
  std::sort(logits.rbegin(), logits.rend());
  experts.clear();
  for (int64_t i = 0; i < model_.experts_per_token; ++i) {
    experts.push_back(logits[static_cast<size_t>(i)].second);
  }
  std::sort(experts.begin(), experts.end());
}

const std::vector<uint32_t>& SyntheticAccesses::ChancesOf(int64_t ffn) {
  Ffn& state = ffns_[static_cast<size_t>(ffn)];
  if (state.topic == topic_) return state.chances;
  state.topic = topic_;
  state.chances.resize(static_cast<size_t>(model_.neurons));
  const std::vector<float>& thresholds =
      thresholds_.size() == 1 ? thresholds_.front() : thresholds_[static_cast<size_t>(ffn)];
  RandomWords random(StreamFor(options_.seed, SimStream::kNeuronTopic, static_cast<uint64_t>(ffn),
                               static_cast<uint64_t>(topic_)));
  static const ChanceTable chance_table;
  static const std::vector<float> normals = NormalTable();
  const auto of_topic = static_cast<float>(std::sqrt(options_.topic_share));
  const auto by_token = static_cast<float>(1 / std::sqrt(1 - options_.topic_share));
  for (size_t i = 0; i < state.chances.size(); ++i) {
    const float normal = normals[random.Next() >> 50];
    state.chances[i] = chance_table.At((of_topic * normal - thresholds[i]) * by_token);
  }
  return state.chances;
}

bool SyntheticAccesses::Next(std::vector<SimList>& lists) {
  ++token_;
  if (token_ > 0 && walk_.NextUnit() * options_.topic_stay < 1) {
    topic_ = static_cast<int64_t>(walk_.NextBelow(static_cast<uint64_t>(options_.topics)));
  }
  lists.clear();
  std::vector<int64_t> experts = {0};
  for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
    if (model_.num_experts > 1) ChooseExperts(layer, experts);
    for (const int64_t expert : experts) {
      SimList list{.layer = layer, .ffn = layer * model_.num_experts + expert, .neurons = {}};
      const std::vector<uint32_t>& chances = ChancesOf(list.ffn);
      RandomWords random(StreamFor(options_.seed, SimStream::kToken,
                                   static_cast<uint64_t>(list.ffn), static_cast<uint64_t>(token_)));
      for (size_t i = 0; i < chances.size(); ++i) {
        if (static_cast<uint32_t>(random.Next() >> 32) < chances[i]) {
          list.neurons.push_back(static_cast<int32_t>(i));
        }
      }
      if (!list.neurons.empty()) lists.push_back(std::move(list));
    }
  }
  return true;
}

RecordedAccesses::RecordedAccesses(const SimModel& model, const AccessSequence& sequence)
    : sequence_(sequence) {
  if (sequence.num_layers != model.num_layers || sequence.num_experts != model.num_experts ||
      sequence.num_neurons != model.neurons) {
    throw Error(ErrorCode::kInvalidArgument, Field{"trace"},
                fmt::format("{} layers of {} FFNs of {} neurons", model.num_layers,
                            model.num_experts, model.neurons),
                "those of the shape",
                fmt::format("{}, {} and {}", sequence.num_layers, sequence.num_experts,
                            sequence.num_neurons));
  }
}

bool RecordedAccesses::Next(std::vector<SimList>& lists) {
  lists.clear();
  while (batch_ < sequence_.num_batches()) {
    const int64_t batch = batch_++;
    for (const int32_t key : sequence_.batch(batch)) {
      const int64_t ffn = key / sequence_.num_neurons;
      if (lists.empty() || lists.back().ffn != ffn) {
        lists.push_back({.layer = ffn / sequence_.num_experts, .ffn = ffn, .neurons = {}});
      }
      lists.back().neurons.push_back(static_cast<int32_t>(key % sequence_.num_neurons));
    }
    if (sequence_.ends_pass(batch)) break;
  }
  return !lists.empty();
}

SimModel WholeExperts(const SimModel& model) {
  SimModel whole = model;
  const auto neurons = static_cast<uint64_t>(model.neurons);
  whole.neurons = 1;
  whole.matrices = model.matrices * model.neurons;
  whole.predictor_macs = 0;
  whole.predictor_bytes = 0;
  whole.slot_bytes *= neurons;
  whole.bundle_bytes *= neurons;
  whole.neuron_bytes *= neurons;
  whole.gate_read_bytes = whole.bundle_bytes;
  return whole;
}

}  // namespace hearth
