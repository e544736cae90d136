#include "planner/placement/placement_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/rounding.h"
#include "base/units.h"
#include "engine/load/model.h"
#include "format/packed_file.h"
#include "prepare/synth/planted_options.h"

namespace hearth {
namespace {

constexpr double kDefaultPlacementSkew = 0.28;  // as synth (prepare/synth/planted_options.h)
constexpr uint64_t kFloatBytes = sizeof(float);

uint64_t MatrixBytes(DType quant, int64_t rows, int64_t cols) {
  return RowBytes(quant, static_cast<size_t>(RoundUp<int64_t>(cols, 32))) *
         static_cast<uint64_t>(rows);
}

uint64_t AttentionBytes(const ModelShape& shape, DType quant) {
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  const uint64_t norms = 2 * static_cast<uint64_t>(shape.hidden_size) * kFloatBytes;
  const uint64_t router =
      static_cast<uint64_t>(shape.num_experts * shape.hidden_size) * kFloatBytes;
  return MatrixBytes(quant, q + 2 * kv, shape.hidden_size) +
         MatrixBytes(quant, shape.hidden_size, q) + norms + router;
}

uint64_t NeuronBytes(const ModelShape& shape, DType quant) {
  return MatrixBytes(quant, shape.gated_ffn ? 3 : 2, shape.hidden_size) +
         (shape.gated_ffn ? 0 : kFloatBytes);  // its bias
}

// Of the experts of a layer, those that a token computes; 1 of a dense layer.
double ComputedShare(int64_t experts, int64_t per_token) {
  return experts > 0 ? static_cast<double>(per_token) / static_cast<double>(experts) : 1;
}

std::vector<double> RatesOfLaw(const ModelShape& shape, const AssumedRates& assumed) {
  if (!(assumed.active >= 0.001 && assumed.active <= 0.9)) {
    throw Error(ErrorCode::kInvalidArgument, Field{"active"}, "share of the neurons",
                "0.001 to 0.9", fmt::format("{:.3g}", assumed.active));
  }
  const SkewRange range = SkewRangeOf(assumed.active);
  const double skew = assumed.skew.value_or(std::max(kDefaultPlacementSkew, range.least));
  if (!(skew >= range.least && skew <= range.greatest)) {
    throw Error(ErrorCode::kInvalidArgument, Field{"skew"}, "share of the neurons",
                fmt::format("{:.3g} to {:.3g}", range.least, range.greatest),
                fmt::format("{:.3g}", skew));
  }
  std::vector<double> rates = PowerLawRates(shape.intermediate_size, assumed.active, skew);
  const double routed = ComputedShare(shape.num_experts, shape.num_experts_per_token);
  for (double& rate : rates) rate *= routed;
  return rates;
}

// ---- from files ----

bool IsFfnMatrix(const std::string& name) {
  return name.find(".ffn_gate.") != std::string::npos ||
         name.find(".ffn_up.") != std::string::npos ||
         name.find(".ffn_down.") != std::string::npos ||
         name.find(".ffn_gate_exps.") != std::string::npos ||
         name.find(".ffn_up_exps.") != std::string::npos ||
         name.find(".ffn_down_exps.") != std::string::npos;
}

uint64_t WeightBytesOfBundle(const BundleLayout& layout) {
  uint64_t bytes = 0;
  for (const BundlePart& part : layout.parts) {
    bytes += part.role != BundleRole::kCheck ? part.bytes : 0;
  }
  return bytes;
}

// Shares out the bytes of a load plan. Sizes are those in memory.
void CountBytes(const LoadPlan& plan, PlacementModel& model) {
  uint64_t ffn_bytes = 0;
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.bundles) {
      ffn_bytes += tensor.neurons() * WeightBytesOfBundle(tensor.bundles->layout);
    } else if (IsFfnMatrix(tensor.decl.name)) {
      ffn_bytes += tensor.bytes;
    } else if (tensor.decl.is_embedding) {
      model.embedding_bytes += tensor.bytes;
    } else {
      model.dense_bytes += tensor.bytes;
    }
  }
  const auto neurons =
      static_cast<uint64_t>(model.num_layers * model.ffns_per_layer * model.neurons);
  model.neuron_bytes = DivideUp(ffn_bytes, neurons);
}

void CheckProfileFits(const GgufFile& file, const PlacementModel& model,
                      const ModelProfile& profile) {
  const uint64_t source = file.metadata().FindUint(kSourceHashKey).value_or(0);
  const bool same_model =
      profile.model_hash == ModelHash(file) || (source != 0 && profile.model_hash == source);
  if (!same_model || profile.num_layers != model.num_layers ||
      profile.ffns_per_layer() != model.ffns_per_layer ||
      profile.intermediate_size != model.neurons) {
    throw Error(ErrorCode::kInvalidArgument, Field{"profile"},
                fmt::format("it is of {}, another model", Printable(profile.model_name)));
  }
  if (profile.text_tokens == 0) {
    throw Error(ErrorCode::kInvalidArgument, Field{"profile"}, "it holds no tokens");
  }
}

void TakeRates(const ModelProfile& profile, PlacementModel& model) {
  for (const FfnProfile& ffn : profile.ffns) {
    std::vector<double>& rates = model.rates.emplace_back();
    for (const uint64_t active : ffn.active) {
      rates.push_back(static_cast<double>(active) / static_cast<double>(profile.text_tokens));
    }
    std::sort(rates.begin(), rates.end(), std::greater<>());
  }
}

// A packed file says how often a neuron fires where its FFN computes a token.
void TakeRates(const GgufFile& file, PlacementModel& model) {
  const auto neurons = static_cast<size_t>(model.neurons);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const GgufTensor* const tensor = file.FindTensorOrNull(BundleRateName(layer));
    if (tensor == nullptr) {
      const std::string* name = file.metadata().FindString("general.name");
      throw Error(ErrorCode::kNotFound, Field{"profile"},
                  fmt::format("{} does not say how often its neurons fire: give what 'hearth "
                              "profile' wrote of it",
                              name != nullptr ? Printable(*name) : "the model"));
    }
    std::vector<float> stored(neurons * static_cast<size_t>(model.ffns_per_layer));
    if (tensor->bytes != stored.size() * sizeof(float)) {
      throw Error(ErrorCode::kCorrupt, BundleRateName(layer), "it does not have a rate per neuron");
    }
    file.ReadTensor(*tensor, 0, std::as_writable_bytes(std::span(stored)));
    for (int64_t expert = 0; expert < model.ffns_per_layer; ++expert) {
      std::vector<double>& rates = model.rates.emplace_back();
      for (size_t i = 0; i < neurons; ++i) {
        const double rate = stored[static_cast<size_t>(expert) * neurons + i];
        if (!(rate >= 0 && rate <= 1)) {
          throw Error(ErrorCode::kCorrupt, BundleRateName(layer), "a rate is no share");
        }
        rates.push_back(rate * model.computed_share);
      }
      std::sort(rates.begin(), rates.end(), std::greater<>());
    }
  }
}

// ---- placing ----

PlacementProblem ProblemOf(const PlacementModel& model, const PlacementMachine& machine,
                           bool dense_on_device) {
  const auto without = [](uint64_t bytes, uint64_t taken) {
    return bytes > taken ? bytes - taken : 0;
  };
  PlacementProblem problem;
  problem.neuron_bytes = model.neuron_bytes;
  problem.device_bytes = without(machine.device_bytes, dense_on_device ? model.dense_bytes : 0);
  if (machine.host_bytes) {
    problem.host_bytes = without(*machine.host_bytes,
                                 model.embedding_bytes + (dense_on_device ? 0 : model.dense_bytes));
  }
  problem.device_bytes_per_s = machine.device_bytes_per_s;
  problem.host_bytes_per_s = machine.host_bytes_per_s;
  problem.sync_seconds = SyncSeconds(model.hidden_size, machine);
  problem.computed_share = model.computed_share;
  for (size_t f = 0; f < model.rates.size(); ++f) {
    const bool is_first = f == 0 || model.rates[f] != model.rates[f - 1];
    problem.ffns.push_back(is_first ? BatchNeurons(0, model.rates[f]) : problem.ffns.back());
    problem.ffns.back().layer = static_cast<int64_t>(f) / model.ffns_per_layer;
  }
  return problem;
}

// How often the first `neurons` of an FFN fire per token, all together.
double ImpactOfFirst(const PlacementFfn& ffn, int64_t neurons) {
  const auto batches =
      std::min<int64_t>(DivideUp(neurons, kPlacementBatch), std::ssize(ffn.impacts));
  return std::accumulate(ffn.impacts.begin(), ffn.impacts.begin() + batches, 0.0);
}

// Where neurons lie: the first ones of every FFN on the device, the next ones on the host.
struct Places {
  const std::vector<int64_t>& device_neurons;
  std::optional<int64_t> host_neurons;  // nothing: all others
  bool dense_on_device;

  double ImpactOnFlash(const PlacementFfn& ffn, size_t index) const {
    if (!host_neurons) return 0;
    return ImpactOfFirst(ffn, ffn.neurons) -
           ImpactOfFirst(ffn, device_neurons[index] + *host_neurons);
  }
};

TokenTime TimeOf(const PlacementModel& model, const PlacementProblem& problem,
                 const PlacementMachine& machine, const Places& places) {
  const bool dense_on_device = places.dense_on_device;
  const auto dense = static_cast<double>(model.dense_bytes);
  const auto neuron = static_cast<double>(problem.neuron_bytes);
  TokenTime time;
  time.dense_seconds =
      dense / (dense_on_device ? problem.device_bytes_per_s : problem.host_bytes_per_s);
  for (size_t f = 0; f < problem.ffns.size();) {
    const int64_t layer = problem.ffns[f].layer;
    double device = 0, all = 0, flash = 0;
    int64_t on_device = 0, neurons = 0;
    for (; f < problem.ffns.size() && problem.ffns[f].layer == layer; ++f) {
      all += ImpactOfFirst(problem.ffns[f], problem.ffns[f].neurons);
      device += ImpactOfFirst(problem.ffns[f], places.device_neurons[f]);
      flash += places.ImpactOnFlash(problem.ffns[f], f);
      on_device += places.device_neurons[f];
      neurons += problem.ffns[f].neurons;
    }
    time.ffn_seconds += std::max({device * neuron / problem.device_bytes_per_s,
                                  (all - device) * neuron / problem.host_bytes_per_s,
                                  flash > 0 ? flash * neuron / machine.flash_bytes_per_s : 0});
    const bool uses_device = dense_on_device || on_device > 0;
    const bool uses_host = !dense_on_device || on_device < neurons;
    if (uses_device && uses_host) time.sync_seconds += problem.sync_seconds;
  }
  return time;
}

// How many neurons of every FFN the host has room for, in whole batches; nothing: for all that are
// not on the device.
std::optional<int64_t> HostNeurons(const PlacementModel& model, std::optional<uint64_t> host_bytes,
                                   int64_t on_device) {
  const uint64_t of_all = model.neuron_bytes * static_cast<uint64_t>(std::ssize(model.rates));
  const int64_t others = model.neurons - on_device;
  if (!host_bytes || of_all * static_cast<uint64_t>(others) <= *host_bytes) return std::nullopt;
  return static_cast<int64_t>(*host_bytes / of_all) / kPlacementBatch * kPlacementBatch;
}

void StayOnFlash(const PlacementModel& model, uint64_t host_bytes, PlacedModel& placed) {
  const std::vector<int64_t>& device = placed.placement.device_neurons;
  placed.host_neurons = HostNeurons(model, host_bytes, device.front());
  if (!placed.host_neurons) return;
  const Places places = {device, placed.host_neurons, placed.dense_on_device};
  for (size_t f = 0; f < device.size(); ++f) {
    const PlacementFfn& ffn = placed.problem.ffns[f];
    placed.flash_bytes +=
        model.neuron_bytes * static_cast<uint64_t>(ffn.neurons - device[f] - *placed.host_neurons);
    placed.flash_impact += places.ImpactOnFlash(ffn, f);
  }
  placed.placement.host_bytes -= placed.flash_bytes;
}

PlacedModel PlaceWith(const PlacementModel& model, const PlacementMachine& machine,
                      bool dense_on_device, PlacementForm form) {
  PlacedModel placed;
  placed.dense_on_device = dense_on_device;
  placed.problem = ProblemOf(model, machine, dense_on_device);
  const std::optional<uint64_t> host_bytes = placed.problem.host_bytes;
  const bool needs_flash =
      host_bytes && model.ffn_bytes() > placed.problem.device_bytes + *host_bytes;
  if (needs_flash && machine.flash_bytes_per_s > 0) {
    placed.problem.host_bytes.reset();
    placed.placement = SolvePlacement(placed.problem, PlacementForm::kUniform);
    StayOnFlash(model, *host_bytes, placed);
  } else {
    placed.placement = SolvePlacement(placed.problem, form);
  }
  placed.time = TimeOf(model, placed.problem, machine,
                       {placed.placement.device_neurons, placed.host_neurons, dense_on_device});
  const std::vector<int64_t> nothing(placed.problem.ffns.size(), 0);
  std::optional<int64_t> alone;
  if (machine.flash_bytes_per_s > 0) {
    alone = HostNeurons(model, ProblemOf(model, machine, false).host_bytes, 0);
  }
  placed.host_time = TimeOf(model, placed.problem, machine, {nothing, alone, false});
  placed.host_time.sync_seconds = 0;
  return placed;
}

void CheckDense(const PlacementModel& model, const PlacementMachine& machine, bool on_device) {
  const uint64_t needed = on_device ? model.dense_bytes : model.embedding_bytes + model.dense_bytes;
  if (on_device ? needed <= machine.device_bytes
                : !machine.host_bytes || needed <= *machine.host_bytes) {
    return;
  }
  throw Error(ErrorCode::kOutOfBudget, "placement",
              fmt::format("{} memory: attention, predictors and output take {} beside the neurons, "
                          "and there are {}",
                          on_device ? "device" : "host", FormatSize(needed),
                          FormatSize(on_device ? machine.device_bytes : *machine.host_bytes)));
}

}  // namespace

DenseSizes DenseSizesOf(const ModelShape& shape, DType quant) {
  DenseSizes sizes;
  sizes.attention_bytes = AttentionBytes(shape, quant);
  sizes.output_bytes = MatrixBytes(quant, shape.vocab_size, shape.hidden_size);
  const auto layers = static_cast<uint64_t>(shape.num_layers);
  const auto neurons =
      static_cast<uint64_t>(std::max<int64_t>(1, shape.num_experts) * shape.intermediate_size);
  const uint64_t weights = layers * sizes.attention_bytes + sizes.output_bytes +
                           layers * neurons * NeuronBytes(shape, quant);
  sizes.predictor_bytes = static_cast<uint64_t>(kPredictorShare * static_cast<double>(weights));
  return sizes;
}

PlacementModel PlacementModelOf(const ModelShape& shape, DType quant, const AssumedRates& assumed) {
  PlacementModel model;
  model.name = shape.name;
  model.num_layers = shape.num_layers;
  model.ffns_per_layer = std::max<int64_t>(1, shape.num_experts);
  model.computed_share = ComputedShare(shape.num_experts, shape.num_experts_per_token);
  model.hidden_size = shape.hidden_size;
  model.neurons = shape.intermediate_size;
  model.neuron_bytes = NeuronBytes(shape, quant);
  const DenseSizes dense = DenseSizesOf(shape, quant);
  model.dense_bytes = static_cast<uint64_t>(shape.num_layers) * dense.attention_bytes +
                      dense.output_bytes + dense.predictor_bytes;
  model.embedding_bytes = shape.tied_embeddings ? 0 : dense.output_bytes;
  model.rates.assign(static_cast<size_t>(model.num_layers * model.ffns_per_layer),
                     RatesOfLaw(shape, assumed));
  model.rates_are_assumed = true;
  return model;
}

PlacementModel PlacementModelOf(const GgufFile& file, const ModelProfile* profile) {
  const LoadPlan plan = PlanLoad(file);
  const FfnSpec& ffn = MainFfn(plan.spec);
  PlacementModel model;
  model.name = plan.spec.name;
  model.num_layers = plan.spec.num_layers;
  model.ffns_per_layer = std::max<int64_t>(1, ffn.num_experts);
  model.computed_share = ComputedShare(ffn.num_experts, ffn.num_experts_per_token);
  model.hidden_size = plan.spec.hidden_size;
  model.neurons = ffn.intermediate_size;
  CountBytes(plan, model);
  if (profile != nullptr) {
    CheckProfileFits(file, model, *profile);
    TakeRates(*profile, model);
  } else {
    TakeRates(file, model);
  }
  return model;
}

PlacementModel ByLayer(PlacementModel model) {
  const auto experts = static_cast<size_t>(model.ffns_per_layer);
  std::vector<std::vector<double>> rates;
  for (size_t first = 0; first < model.rates.size(); first += experts) {
    std::vector<double>& mean = rates.emplace_back(model.rates[first].size(), 0.0);
    for (size_t expert = 0; expert < experts; ++expert) {
      for (size_t i = 0; i < mean.size(); ++i) {
        mean[i] += model.rates[first + expert][i] / static_cast<double>(experts);
      }
    }
  }
  model.rates = std::move(rates);
  model.neuron_bytes *= experts;
  model.ffns_per_layer = 1;
  return model;
}

const char* DensePlaceName(DensePlace place) {
  switch (place) {
    case DensePlace::kAuto:
      return "auto";
    case DensePlace::kDevice:
      return "device";
    case DensePlace::kHost:
      return "host";
  }
  return "?";
}

std::optional<DensePlace> DensePlaceFromName(std::string_view name) {
  for (const DensePlace place : {DensePlace::kAuto, DensePlace::kDevice, DensePlace::kHost}) {
    if (name == DensePlaceName(place)) return place;
  }
  return std::nullopt;
}

double SyncSeconds(int64_t hidden_size, const PlacementMachine& machine) {
  const auto vector_bytes = static_cast<double>(hidden_size) * kFloatBytes;
  return 2 * (machine.link_seconds + vector_bytes / machine.link_bytes_per_s);
}

PlacedModel PlaceModel(const PlacementModel& model, const PlacementMachine& machine,
                       DensePlace dense, PlacementForm form) {
  if (!(machine.link_bytes_per_s > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "placement", "the link's bandwidth must be above 0");
  }
  if (dense != DensePlace::kAuto) {
    CheckDense(model, machine, dense == DensePlace::kDevice);
    return PlaceWith(model, machine, dense == DensePlace::kDevice, form);
  }
  std::optional<PlacedModel> best;
  std::optional<Error> refusal;
  for (const bool on_device : {true, false}) {
    try {
      CheckDense(model, machine, on_device);
      PlacedModel placed = PlaceWith(model, machine, on_device, form);
      if (!best || placed.time.total() < best->time.total()) best = std::move(placed);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfBudget) throw;
      refusal = error;
    }
  }
  if (!best) throw *refusal;
  return std::move(*best);
}

}  // namespace hearth
