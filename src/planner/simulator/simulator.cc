#include "planner/simulator/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/budget.h"
#include "base/error.h"
#include "base/random_words.h"
#include "base/rounding.h"
#include "base/units.h"
#include "cache/neuron_cache.h"

namespace hearth {
namespace {

template <typename Value>
double MeanOf(const std::vector<SimToken>& tokens, Value&& value) {
  double sum = 0;
  for (const SimToken& token : tokens) sum += value(token);
  return sum / static_cast<double>(tokens.size());
}

template <typename Value>
double QuantileOf(const std::vector<SimToken>& tokens, double p, Value&& value) {
  std::vector<double> values;
  for (const SimToken& token : tokens) values.push_back(value(token));
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<int64_t>(std::ceil(p * count)) - 1;
  return values[static_cast<size_t>(
      std::clamp<int64_t>(rank, 0, static_cast<int64_t>(values.size()) - 1))];
}

double MissRateOf(const SimToken& token) {
  return token.listed == 0 ? 0
                           : static_cast<double>(token.missed) / static_cast<double>(token.listed);
}

void CheckOptions(const SimModel& model, const SimOptions& options) {
  const auto refuse = [](const char* what, const std::string& expected, double found) {
    throw Error(ErrorCode::kInvalidArgument, "simulate", what, expected, fmt::format("{}", found));
  };
  if (options.tokens < 1 || options.tokens > 10'000'000) {
    refuse("tokens", "1 to 10 million", static_cast<double>(options.tokens));
  }
  if (options.warmup_tokens < 0 || options.warmup_tokens > 10'000'000) {
    refuse("tokens before them", "0 to 10 million", static_cast<double>(options.warmup_tokens));
  }
  const int64_t cluster = options.strategy.cluster_neurons;
  if (cluster < 0 || cluster > 1'000'000) {
    refuse("neurons of a cluster", "1 to a million", static_cast<double>(cluster));
  }
  if (options.strategy.queue_depth < 1 || options.strategy.queue_depth > 4096) {
    refuse("reads in flight", "1 to 4096", options.strategy.queue_depth);
  }
  if (!(options.gate_fires >= 0 && options.gate_fires <= 1)) {
    refuse("share of gates that fire", "0 to 1", options.gate_fires);
  }
  if (model.num_neurons() > NeuronCache::kMaxKeys) {
    refuse("neurons", fmt::format("at most {}", NeuronCache::kMaxKeys),
           static_cast<double>(model.num_neurons()));
  }
}

// Tokens in the window of P2's port of LLM in a Flash, as that paper has it.
constexpr int32_t kPaperWindow = 5;

class Simulation {
 public:
  Simulation(const SimDevice& device, const SimModel& model, const SimOptions& options)
      : device_(device),
        model_(model),
        options_(options),
        flash_(device.flash),
        ffn_(device, model, flash_, options.strategy) {
    const SimPipeline pipeline = options.strategy.pipeline;
    const bool is_paper = options.strategy.system == SimSystem::kPowerInfer2;
    const uint64_t all = SimFfnBytes(model, pipeline);
    cache_bytes_ = std::min(options.cache_bytes.value_or(all), all);
    is_mapped_ = pipeline == SimPipeline::kMmap;
    computes_window_ = is_paper && pipeline == SimPipeline::kLlmFlash;
    keeps_gates_ = !is_paper && options.strategy.reads_gates_first();
    slot_bytes_ = is_mapped_ ? device.mmap_block_bytes : model.slot_bytes;
    slots_per_ffn_ = model.neurons;
    if (is_mapped_) {
      slots_per_ffn_ = static_cast<int64_t>(
          DivideUp(static_cast<uint64_t>(model.neurons) * model.neuron_bytes, slot_bytes_));
    }
    all_resident_ = cache_bytes_ == all;
    num_slots_ = std::min(static_cast<int64_t>(cache_bytes_ / slot_bytes_),
                          model.num_ffns() * slots_per_ffn_);
    if (num_slots_ > 0 && !all_resident_) MakeCache();
  }

  SimResult Run(SimAccesses& accesses) {
    SimResult result;
    result.cache_bytes = cache_bytes_;
    std::vector<SimList> lists;
    const int64_t total = options_.warmup_tokens + options_.tokens;
    SimFfnCounts before;
    for (int64_t token = 0; token < total && accesses.Next(lists); ++token) {
      if (options_.progress) options_.progress(token, total);
      if (options_.cancel != nullptr && options_.cancel->load()) {
        throw Error(ErrorCode::kCancelled, "simulate", "interrupted");
      }
      if (token == options_.warmup_tokens) {
        before = counts_;
        sums_.ffn_seconds = sums_.dense_seconds = 0;
        sums_.busy_before = ffn_.counts().busy_ns;
      }
      const SimToken measured = RunToken(lists);
      if (token >= options_.warmup_tokens) result.tokens.push_back(measured);
    }
    if (result.tokens.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "simulate",
                  fmt::format("the accesses end within the first {} tokens, before any is measured",
                              options_.warmup_tokens));
    }
    Describe(before, result);
    return result;
  }

 private:
  // Since the first token that is measured, but what says otherwise.
  struct Sums {
    double ffn_seconds = 0;
    double dense_seconds = 0;
    int64_t busy_before = 0;   // of the cores, until then
    int64_t mapped_reads = 0;  // of all tokens
  };

  CachePolicyKind Policy() const {
    if (options_.policy) return *options_.policy;
    if (options_.strategy.pipeline == SimPipeline::kLlmFlash) return CachePolicyKind::kWindow;
    if (is_mapped_) return CachePolicyKind::kLru;
    const bool is_paper = options_.strategy.system == SimSystem::kPowerInfer2;
    return is_paper ? CachePolicyKind::kTwoQueue : kDefaultCachePolicy;
  }

  void MakeCache() {
    const bool few_layers = model_.num_layers <= NeuronCache::kMaxLayers;
    cache_ = std::make_unique<NeuronCache>(
        budget_,
        NeuronCacheOptions{.num_keys = model_.num_ffns() * slots_per_ffn_,
                           .num_slots = num_slots_,
                           .slot_bytes = 0,
                           .num_layers = few_layers ? model_.num_layers : 1,
                           .policy = Policy(),
                           .window_tokens = computes_window_ ? kPaperWindow : 0},
        std::span<std::byte>());
    if (keeps_gates_) gate_alone_.assign(static_cast<size_t>(model_.num_neurons()), 0);
    // Of experts nobody knows which are hot, pages come with the first tokens, and the paper's
    // neurons all begin outside (P2 §4.2).
    const bool is_ours = options_.strategy.system == SimSystem::kHearth;
    if (options_.warm_start && is_ours && !is_mapped_ && model_.neurons > 1) Warm();
  }

  // The first neurons of all FFNs, which fire most (pipeline/streamed_ffns.cc).
  void Warm() {
    std::vector<int32_t> keys(static_cast<size_t>(num_slots_)), slots(keys.size());
    const int64_t ffns = model_.num_ffns();
    for (int64_t i = 0; i < num_slots_; ++i) {
      keys[static_cast<size_t>(i)] = static_cast<int32_t>(i % ffns * model_.neurons + i / ffns);
    }
    cache_->Seed(keys, slots);
  }

  // Seconds of work that all compute cores share evenly.
  double SharedSeconds(double macs) const {
    return std::max(macs / device_.compute_macs_per_s(),
                    macs * kSimWeightBytes / device_.memory_bytes_per_s);
  }

  SimToken RunToken(const std::vector<SimList>& lists) {
    SimToken token;
    const int64_t start_ns = now_ns_;
    size_t list = 0;
    for (int64_t layer = 0; layer < model_.num_layers; ++layer) {
      const size_t first = list;
      while (list < lists.size() && lists[list].layer == layer) ++list;
      const auto of_layer = std::span(lists).subspan(first, list - first);
      const double predicts =
          is_mapped_ ? 0 : model_.predictor_macs * static_cast<double>(model_.experts_per_token);
      PassDense(model_.attention_macs + predicts);
      const int64_t begin_ns = now_ns_;
      if (is_mapped_) {
        RunMapped(of_layer, token);
      } else {
        RunListed(of_layer, token);
      }
      sums_.ffn_seconds += 1e-9 * static_cast<double>(now_ns_ - begin_ns);
    }
    PassDense(model_.output_macs);
    if (cache_) cache_->EndToken();
    ++token_index_;
    token.seconds = 1e-9 * static_cast<double>(now_ns_ - start_ns);
    return token;
  }

  void PassDense(double macs) {
    const double seconds = SharedSeconds(macs);
    sums_.dense_seconds += seconds;
    now_ns_ += std::llround(seconds * 1e9);
  }

  // Calls miss(i) for each offset that is not in memory.
  template <typename Miss>
  void LookUp(int64_t first_key, std::span<const int32_t> offsets, Miss&& miss) {
    if (all_resident_) return;
    if (!cache_) {
      for (size_t i = 0; i < offsets.size(); ++i) miss(i);
      return;
    }
    const KeyBatch batch = {static_cast<int32_t>(first_key), offsets};
    entries_.resize(offsets.size());
    cache_->Lookup(batch, entries_);
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (entries_[i].found == CacheFound::kHit) continue;
      if (entries_[i].found == CacheFound::kMiss)
        cache_->Loaded(batch.key(static_cast<int64_t>(i)));
      miss(i);
    }
    cache_->Release(batch, entries_);
  }

  bool GateFires(int64_t key) const {
    const uint64_t word =
        StreamOf(options_.seed, static_cast<uint64_t>(key), static_cast<uint64_t>(token_index_));
    return static_cast<double>(word >> 11) * 0x1p-53 < options_.gate_fires;
  }

  void RunListed(std::span<const SimList> lists, SimToken& token) {
    work_.resident = work_.resident_goes_on = 0;
    work_.missing.clear();
    const auto missed_before = token.missed;
    for (const SimList& list : lists) {
      const int64_t first_key = list.ffn * model_.neurons;
      is_missing_.assign(list.neurons.size(), 0);
      LookUp(first_key, list.neurons, [&](size_t i) { is_missing_[i] = 1; });
      for (size_t i = 0; i < list.neurons.size(); ++i) {
        token.missed += is_missing_[i];
        AddWork(first_key + list.neurons[i], is_missing_[i] != 0);
      }
      token.listed += static_cast<int64_t>(list.neurons.size());
    }
    if (computes_window_) ComputeWindow(lists, token.missed - missed_before);
    now_ns_ = ffn_.Run(work_, now_ns_);
    counts_ = ffn_.counts();
  }

  void AddWork(int64_t key, bool is_missing) {
    const bool goes_on = GateFires(key);
    const uint64_t offset = static_cast<uint64_t>(key) * model_.bundle_bytes;
    const bool is_half = !gate_alone_.empty() && gate_alone_[static_cast<size_t>(key)] != 0;
    if (is_missing) {
      work_.missing.push_back({offset, goes_on, false});
      if (!gate_alone_.empty()) gate_alone_[static_cast<size_t>(key)] = goes_on ? 0 : 1;
    } else if (is_half && goes_on) {
      work_.missing.push_back({offset, true, true});
      gate_alone_[static_cast<size_t>(key)] = 0;
    } else {
      ++work_.resident;
      work_.resident_goes_on += goes_on ? 1 : 0;
    }
  }

  // LLM in a Flash multiplies all that it holds of an FFN (Alizadeh et al. 2023, 3.3), listed or
  // not. Of that, `missed` are read first.
  void ComputeWindow(std::span<const SimList> lists, int64_t missed) {
    if (all_resident_ || !cache_) return;
    int64_t held = 0;
    for (const SimList& list : lists) {
      const auto first = static_cast<int32_t>(list.ffn * model_.neurons);
      for (int32_t i = 0; i < static_cast<int32_t>(model_.neurons); ++i) {
        held += cache_->state(first + i) != CacheState::kAbsent ? 1 : 0;
      }
    }
    work_.resident = std::max(work_.resident, held - missed);
    work_.resident_goes_on = work_.resident;
    for (SimMissing& neuron : work_.missing) neuron.goes_on = true;
  }

  // All pages of the layer's FFNs, then all their neurons.
  void RunMapped(std::span<const SimList> lists, SimToken& token) {
    if (blocks_.empty()) {
      blocks_.resize(static_cast<size_t>(slots_per_ffn_));
      std::iota(blocks_.begin(), blocks_.end(), 0);
    }
    int64_t done_ns = now_ns_;
    uint64_t pages = 0;
    for (const SimList& list : lists) {
      const int64_t first_key = list.ffn * slots_per_ffn_;
      LookUp(first_key, blocks_, [&](size_t i) {
        const auto key = static_cast<uint64_t>(first_key) + i;
        const auto queue = static_cast<int>(i) % device_.num_compute_cores();
        done_ns = flash_.Serve({key * slot_bytes_, slot_bytes_, queue, FaultingKind()}, now_ns_);
        ++sums_.mapped_reads;
        ++token.missed;
        ++pages;
      });
      token.listed += slots_per_ffn_;
    }
    if (device_.mmap_bytes_per_s > 0) {
      const double seconds = static_cast<double>(pages * slot_bytes_) / device_.mmap_bytes_per_s;
      done_ns = std::max(done_ns, now_ns_ + static_cast<int64_t>(seconds * 1e9));
    }
    const auto neurons = static_cast<int64_t>(lists.size()) * model_.neurons;
    now_ns_ = ffn_.Run({.resident = neurons, .resident_goes_on = neurons, .missing = {}}, done_ns);
    counts_ = ffn_.counts();
    counts_.reads = sums_.mapped_reads;
    counts_.bytes = static_cast<uint64_t>(sums_.mapped_reads) * slot_bytes_;
  }

  int FaultingKind() const {
    const auto first = std::find_if(device_.compute.begin(), device_.compute.end(),
                                    [](int count) { return count > 0; });
    return static_cast<int>(first - device_.compute.begin());
  }

  void Describe(const SimFfnCounts& before, SimResult& result) const {
    const auto tokens = static_cast<double>(result.tokens.size());
    result.bytes_per_token = static_cast<double>(counts_.bytes - before.bytes) / tokens;
    result.reads_per_token = static_cast<double>(counts_.reads - before.reads) / tokens;
    result.dense_seconds = sums_.dense_seconds / tokens;
    result.compute_seconds = 1e-9 * static_cast<double>(ffn_.counts().busy_ns - sums_.busy_before) /
                             device_.num_compute_cores() / tokens;
    result.wait_seconds = sums_.ffn_seconds / tokens - result.compute_seconds;
  }

  const SimDevice& device_;
  const SimModel& model_;
  const SimOptions& options_;
  Budget budget_;
  DeviceModel flash_;
  SimFfn ffn_;
  std::unique_ptr<NeuronCache> cache_;  // null: all resident, or no slot
  uint64_t cache_bytes_ = 0;
  bool is_mapped_ = false;
  bool all_resident_ = false;
  bool computes_window_ = false;  // of what is held, all, listed or not
  bool keeps_gates_ = false;      // of silent neurons, without the rest
  uint64_t slot_bytes_ = 0;
  int64_t slots_per_ffn_ = 0;
  int64_t num_slots_ = 0;
  int64_t now_ns_ = 0;
  int64_t token_index_ = 0;
  Sums sums_;
  SimFfnCounts counts_;
  std::vector<uint8_t> gate_alone_;  // by key; empty where bundles are held whole
  // Scratch.
  SimFfnWork work_;
  std::vector<CacheEntry> entries_;
  std::vector<uint8_t> is_missing_;
  std::vector<int32_t> blocks_;
};

}  // namespace

double SimResult::mean_seconds() const {
  return MeanOf(tokens, [](const SimToken& token) { return token.seconds; });
}

double SimResult::QuantileSeconds(double p) const {
  return QuantileOf(tokens, p, [](const SimToken& token) { return token.seconds; });
}

double SimResult::listed_per_token() const {
  return MeanOf(tokens, [](const SimToken& token) { return static_cast<double>(token.listed); });
}

double SimResult::mean_miss_rate() const { return MeanOf(tokens, MissRateOf); }

double SimResult::QuantileMissRate(double p) const { return QuantileOf(tokens, p, MissRateOf); }

uint64_t SimFfnBytes(const SimModel& model, SimPipeline pipeline) {
  return pipeline == SimPipeline::kMmap
             ? static_cast<uint64_t>(model.num_neurons()) * model.neuron_bytes
             : model.slots_bytes();
}

void SimResult::Add(const SimResult& other) {
  const auto here = static_cast<double>(tokens.size()),
             more = static_cast<double>(other.tokens.size());
  for (double SimResult::*value :
       {&SimResult::bytes_per_token, &SimResult::reads_per_token, &SimResult::dense_seconds,
        &SimResult::compute_seconds, &SimResult::wait_seconds}) {
    this->*value = (here * this->*value + more * other.*value) / (here + more);
  }
  tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.end());
}

uint64_t SimCacheBytes(const SimModel& model, SimPipeline pipeline, uint64_t memory_bytes) {
  const uint64_t resident = pipeline == SimPipeline::kMmap ? model.dense_bytes + model.runtime_bytes
                                                           : model.resident_bytes();
  if (memory_bytes <= resident) {
    throw Error(ErrorCode::kOutOfBudget, Field{"memory"},
                fmt::format("{} are not enough for what must be in memory beside neurons: {}M are",
                            FormatSize(memory_bytes), (resident >> 20) + 1));
  }
  return memory_bytes - resident;
}

SimResult Simulate(const SimDevice& device, const SimModel& model, const SimOptions& options,
                   SimAccesses& accesses) {
  CheckSimDevice(device, "device");
  CheckOptions(model, options);
  return Simulation(device, model, options).Run(accesses);
}

}  // namespace hearth
