#include "prepare/profile/sparsity_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "ops/silent_gates.h"
#include "sparsity/profile_stats.h"

namespace hearth {
namespace {

constexpr double kActiveQueueShare = 0.9;

// Counts per FFN, and the active neurons of every token as bits.
class Recorder : public PassObserver {
 public:
  Recorder(const ModelSpec& spec, int64_t tokens)
      : spec_(spec),
        experts_(std::max<int64_t>(MainFfn(spec).num_experts, 1)),
        neurons_(MainFfn(spec).intermediate_size),
        ffns_(static_cast<size_t>(spec.num_layers * experts_)),
        bits_(static_cast<size_t>(tokens)) {
    for (Counts& ffn : ffns_) ffn.active.resize(static_cast<size_t>(neurons_));
    for (auto& token : bits_) {
      token.resize(static_cast<size_t>(spec.num_layers * experts_ * neurons_));
    }
  }

  // Of the text's token that row 0 of the next batch is.
  void SetFirst(int64_t token) { first_ = token; }

  void OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t>, FloatView gate,
                   FloatView) override {
    Counts& ffn = At(layer, expert);
    const FfnSpec& spec = spec_.layers[static_cast<size_t>(layer)].ffn;
    const SilentGates silent = SilentGatesOf(spec.activation, spec.threshold);
    for (int64_t r = 0; r < gate.rows; ++r) {
      ffn.gates_fired += std::count_if(gate.row(r), gate.row(r) + gate.cols,
                                       [silent](float value) { return !silent.Contains(value); });
    }
  }

  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView activation) override {
    Counts& ffn = At(layer, expert);
    const int64_t first_neuron = (layer * experts_ + expert) * neurons_;
    for (int64_t r = 0; r < activation.rows; ++r) {
      auto& bits = bits_[static_cast<size_t>(first_ + tokens[static_cast<size_t>(r)])];
      ++ffn.tokens;
      for (int64_t j = 0; j < neurons_; ++j) {
        if (activation.row(r)[j] == 0.0f) continue;
        ++ffn.active[static_cast<size_t>(j)];
        bits[static_cast<size_t>(first_neuron + j)] = true;
      }
    }
  }

  void OnFfnNeurons(const NeuronObservation& observed) override {
    Counts& ffn = At(observed.layer, observed.expert);
    const int64_t first_neuron = (observed.layer * experts_ + observed.expert) * neurons_;
    auto& bits = bits_[static_cast<size_t>(first_ + observed.token)];
    ++ffn.tokens;
    ffn.gates_fired += observed.all.up;
    for (const int32_t neuron : observed.active) {
      ++ffn.active[static_cast<size_t>(neuron)];
      bits[static_cast<size_t>(first_neuron + neuron)] = true;
    }
  }

  SparsityReport Report() const {
    SparsityReport report;
    double pairs = 0, gates = 0, active = 0;
    for (size_t i = 0; i < ffns_.size(); ++i) {
      const Counts& ffn = ffns_[i];
      if (ffn.tokens == 0) continue;
      const auto ffn_pairs = static_cast<double>(ffn.tokens * neurons_);
      const auto sum =
          static_cast<double>(std::accumulate(ffn.active.begin(), ffn.active.end(), int64_t{0}));
      report.ffns.push_back({.layer = static_cast<int64_t>(i) / experts_,
                             .expert = static_cast<int64_t>(i) % experts_,
                             .tokens = ffn.tokens,
                             .gate = static_cast<double>(ffn.gates_fired) / ffn_pairs,
                             .active = sum / ffn_pairs,
                             .hot_share = HotShareOf(ffn.active, sum)});
      pairs += ffn_pairs;
      gates += static_cast<double>(ffn.gates_fired);
      active += sum;
    }
    report.gate = gates / pairs;
    report.active = active / pairs;
    return report;
  }

  const std::vector<std::vector<bool>>& bits() const { return bits_; }

 private:
  struct Counts {
    int64_t tokens = 0;
    int64_t gates_fired = 0;
    std::vector<int64_t> active;  // per neuron
  };

  Counts& At(int64_t layer, int64_t expert) {
    return ffns_[static_cast<size_t>(layer * experts_ + expert)];
  }

  static double HotShareOf(std::vector<int64_t> counts, double sum) {
    std::sort(counts.begin(), counts.end(), std::greater<>());
    double seen = 0;
    size_t hot = 0;
    while (hot < counts.size() && seen < kHotShare * sum) {
      seen += static_cast<double>(counts[hot++]);
    }
    return static_cast<double>(hot) / static_cast<double>(counts.size());
  }

  const ModelSpec& spec_;
  const int64_t experts_;
  const int64_t neurons_;
  std::vector<Counts> ffns_;             // [layer][expert]
  std::vector<std::vector<bool>> bits_;  // [token][layer, expert, neuron]
  int64_t first_ = 0;
};

// Two queues; one, which is LRU, where `active_share` is 0.
class SimulatedCache {
 public:
  SimulatedCache(size_t entries, size_t capacity, double active_share)
      : capacity_(capacity),
        active_capacity_(static_cast<size_t>(active_share * static_cast<double>(capacity))),
        state_(entries, State::kAbsent),
        place_(entries) {}

  // False where the entry was missing; it is there afterwards.
  bool Access(int32_t entry) {
    State& state = state_[static_cast<size_t>(entry)];
    auto& place = place_[static_cast<size_t>(entry)];
    if (state == State::kAbsent) {
      inactive_.push_front(entry);
      place = inactive_.begin();
      state = State::kInactive;
      if (active_.size() + inactive_.size() > capacity_) {
        state_[static_cast<size_t>(inactive_.back())] = State::kAbsent;
        inactive_.pop_back();
      }
      return false;
    }
    if (active_capacity_ == 0) {
      inactive_.splice(inactive_.begin(), inactive_, place);
      return true;
    }
    active_.splice(active_.begin(), state == State::kActive ? active_ : inactive_, place);
    state = State::kActive;
    if (active_.size() > active_capacity_) {
      const int32_t last = active_.back();
      inactive_.splice(inactive_.begin(), active_, place_[static_cast<size_t>(last)]);
      state_[static_cast<size_t>(last)] = State::kInactive;
    }
    return true;
  }

 private:
  enum class State : uint8_t { kAbsent, kInactive, kActive };

  const size_t capacity_;
  const size_t active_capacity_;
  std::vector<State> state_;
  std::vector<std::list<int32_t>::iterator> place_;
  std::list<int32_t> active_, inactive_;
};

MissRates Replay(const std::vector<std::vector<bool>>& tokens, double active_share) {
  const size_t entries = tokens.front().size();
  SimulatedCache cache(entries, entries / 2, active_share);
  std::vector<double> rates;
  for (size_t t = 0; t < tokens.size(); ++t) {
    int64_t active = 0, missed = 0;
    for (size_t i = 0; i < entries; ++i) {
      if (!tokens[t][i]) continue;
      ++active;
      missed += !cache.Access(static_cast<int32_t>(i));
    }
    if (t >= tokens.size() / 4) {
      rates.push_back(static_cast<double>(missed) / std::max(1.0, static_cast<double>(active)));
    }
  }
  std::sort(rates.begin(), rates.end());
  return {
      .mean = std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size()),
      .p99 = rates[rates.size() * 99 / 100]};
}

}  // namespace

SparsityReport MeasureSparsity(Engine& engine, std::span<const TokenId> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < 1 || count > engine.context()) {
    throw Error(ErrorCode::kInvalidArgument, "tokens to measure", "how many",
                fmt::format("1 to {}", engine.context()), std::to_string(count));
  }
  Recorder recorder(engine.model().spec(), count);
  KvSequence kv(engine.kv_pool());
  const int64_t batch = engine.pass().limits().max_tokens;
  for (int64_t begin = 0; begin < count; begin += batch) {
    recorder.SetFirst(begin);
    const BatchSequence sequence{
        &kv, tokens.subspan(static_cast<size_t>(begin),
                            static_cast<size_t>(std::min(batch, count - begin)))};
    engine.pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine.selector(), &recorder);
  }
  SparsityReport report = recorder.Report();
  report.lru = Replay(recorder.bits(), 0);
  report.two_queues = Replay(recorder.bits(), kActiveQueueShare);
  return report;
}

}  // namespace hearth
