#include "planner/placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/rounding.h"
#include "base/units.h"
#include "planner/placement/placement_program.h"

namespace hearth {
namespace {

constexpr double kMostNeurons = 1e15;  // of C_l: more than any layer has

[[noreturn]] void ThrowProblem(const char* what) {
  throw Error(ErrorCode::kInvalidArgument, "placement", what);
}

void CheckFfn(const PlacementFfn& ffn, int64_t last_layer) {
  if (ffn.layer != last_layer && ffn.layer != last_layer + 1) {
    ThrowProblem("layers do not follow each other");
  }
  if (ffn.neurons < 1 ||
      static_cast<int64_t>(ffn.impacts.size()) != DivideUp(ffn.neurons, kPlacementBatch)) {
    ThrowProblem("an FFN does not have the batches of its neurons");
  }
  for (const double impact : ffn.impacts) {
    if (!(impact >= 0) || !std::isfinite(impact)) ThrowProblem("impacts are not numbers above 0");
  }
  if (!std::is_sorted(ffn.impacts.rbegin(), ffn.impacts.rend())) {
    ThrowProblem("batches do not descend in impact");
  }
}

void CheckProblem(const PlacementProblem& problem) {
  if (problem.ffns.empty() || problem.neuron_bytes == 0) ThrowProblem("there are no neurons");
  int64_t last_layer = -1;
  for (const PlacementFfn& ffn : problem.ffns) {
    CheckFfn(ffn, last_layer);
    last_layer = ffn.layer;
  }
  for (const double rate : {problem.device_bytes_per_s, problem.host_bytes_per_s}) {
    if (!(rate > 0) || !std::isfinite(rate)) ThrowProblem("bandwidths must be above 0");
  }
  if (!(problem.sync_seconds >= 0) || !std::isfinite(problem.sync_seconds)) {
    ThrowProblem("the time of a synchronization must not be negative");
  }
}

int64_t NeuronsOfBatch(const PlacementFfn& ffn, size_t batch) {
  return std::min(kPlacementBatch, ffn.neurons - static_cast<int64_t>(batch) * kPlacementBatch);
}

int64_t AllNeurons(const PlacementProblem& problem) {
  return std::accumulate(problem.ffns.begin(), problem.ffns.end(), int64_t{0},
                         [](int64_t sum, const PlacementFfn& ffn) { return sum + ffn.neurons; });
}

// (6) in neurons: at most and at least so many lie on the device.
struct DeviceLimits {
  int64_t most = 0;
  int64_t least = 0;
};

DeviceLimits LimitsOf(const PlacementProblem& problem) {
  const int64_t all = AllNeurons(problem);
  const auto fitting = [&](uint64_t bytes) {
    return static_cast<int64_t>(
        std::min<uint64_t>(bytes / problem.neuron_bytes, static_cast<uint64_t>(all)));
  };
  const int64_t on_host = problem.host_bytes ? fitting(*problem.host_bytes) : all;
  return {fitting(problem.device_bytes), all - on_host};
}

void CheckLimits(const PlacementProblem& problem, const DeviceLimits& limits) {
  if (limits.least <= limits.most) return;
  throw Error(
      ErrorCode::kOutOfBudget, "placement",
      fmt::format("the neurons take {}, more than the {} of the device and the {} of the host "
                  "together",
                  FormatSize(static_cast<uint64_t>(AllNeurons(problem)) * problem.neuron_bytes),
                  FormatSize(problem.device_bytes), FormatSize(*problem.host_bytes)));
}

[[noreturn]] void ThrowCommunication(const DeviceLimits& limits,
                                     const std::optional<int64_t>& least) {
  const std::string why =
      least ? fmt::format("a layer pays for its synchronization only from {} neurons on", *least)
            : "the device computes no neuron sooner than the host";
  throw Error(ErrorCode::kOutOfBudget, "placement",
              fmt::format("communication: the host's memory leaves {} neurons to "
                          "the device, and {}",
                          limits.least, why));
}

// At most so many layers can have their least. (4) and (6) imply it; said so that the program knows
// it without whole numbers too, or the search takes ages.
int AddLayersRow(PlacementProgram& program, int64_t least, int64_t most) {
  return program.AddRow(0, least > 0 ? static_cast<double>(most / least) : kNoLimit);
}

// ---- by batch ----

std::vector<int64_t> SolveByBatch(const PlacementProblem& problem, const DeviceLimits& limits) {
  const std::optional<int64_t> least = LeastNeurons(problem);
  PlacementProgram program;
  const int memory = program.AddRow(static_cast<double>(limits.least),  // (6) of both units
                                    static_cast<double>(limits.most));
  const int layers_row = AddLayersRow(program, least.value_or(0), limits.most);
  std::vector<int> first_columns;
  for (size_t f = 0; f < problem.ffns.size();) {
    const int64_t layer = problem.ffns[f].layer;
    size_t end = f;
    int64_t neurons = 0, batches = 0;
    for (; end < problem.ffns.size() && problem.ffns[end].layer == layer; ++end) {
      neurons += problem.ffns[end].neurons;
      batches += static_cast<int64_t>(problem.ffns[end].impacts.size());
    }
    const bool can_pay = least && *least <= neurons;
    const int enough = program.AddRow(0, kNoLimit);  // (7)
    const int none = program.AddRow(-kNoLimit, 0);   // (8), K = all batches of the layer
    program.AddColumn(0, can_pay ? 1 : 0, true,      // y_l
                      {{enough, can_pay ? -static_cast<double>(*least) : 0},
                       {none, -static_cast<double>(batches)},
                       {layers_row, 1}});
    for (; f < end; ++f) {
      const PlacementFfn& ffn = problem.ffns[f];
      int after = -1;  // a batch is there only where the one before it is
      for (size_t b = 0; b < ffn.impacts.size(); ++b) {
        const auto size = static_cast<double>(NeuronsOfBatch(ffn, b));
        std::vector<PlacementProgram::Term> terms = {{memory, size}, {enough, size}, {none, 1}};
        if (after >= 0) terms.push_back({after, 1});
        after = program.AddRow(-kNoLimit, 0);
        terms.push_back({after, -1});
        const int column = program.AddColumn(ffn.impacts[b], 1, true, std::move(terms));
        if (b == 0) first_columns.push_back(column);
      }
    }
  }
  const std::vector<double> x = program.Solve();
  if (x.empty()) ThrowCommunication(limits, least);
  std::vector<int64_t> device(problem.ffns.size(), 0);
  for (size_t f = 0; f < problem.ffns.size(); ++f) {
    for (size_t b = 0; b < problem.ffns[f].impacts.size(); ++b) {
      if (x[static_cast<size_t>(first_columns[f]) + b] < 0.5) break;
      device[f] += NeuronsOfBatch(problem.ffns[f], b);
    }
  }
  return device;
}

// ---- by layer ----

struct RankedBatch {
  double impact = 0;
  size_t ffn = 0;
};

// All layers with the same impacts.
struct LayerClass {
  std::vector<double> impacts;              // of a layer's batches, descending
  std::vector<std::vector<size_t>> owners;  // by layer: the FFN of each of these batches
};

// A run of batches with the same impact, after those that a layer must have.
struct BatchRun {
  double impact = 0;
  int64_t batches = 0;  // of one layer
  size_t of_class = 0;
};

std::vector<LayerClass> ClassifyLayers(const PlacementProblem& problem) {
  std::map<std::vector<double>, size_t> known;
  std::vector<LayerClass> classes;
  for (size_t f = 0; f < problem.ffns.size();) {
    const int64_t layer = problem.ffns[f].layer;
    std::vector<RankedBatch> batches;
    for (; f < problem.ffns.size() && problem.ffns[f].layer == layer; ++f) {
      for (const double impact : problem.ffns[f].impacts) batches.push_back({impact, f});
    }
    std::stable_sort(
        batches.begin(), batches.end(),
        [](const RankedBatch& a, const RankedBatch& b) { return a.impact > b.impact; });
    std::vector<double> impacts;
    std::vector<size_t> owners;
    for (const RankedBatch& batch : batches) {
      impacts.push_back(batch.impact);
      owners.push_back(batch.ffn);
    }
    const auto [at, is_new] = known.emplace(impacts, classes.size());
    if (is_new) classes.push_back({std::move(impacts), {}});
    classes[at->second].owners.push_back(std::move(owners));
  }
  return classes;
}

std::vector<BatchRun> RunsBehind(const LayerClass& layers, size_t of_class, int64_t least) {
  std::vector<BatchRun> runs;
  for (auto b = static_cast<size_t>(least); b < layers.impacts.size(); ++b) {
    if (runs.empty() || runs.back().impact != layers.impacts[b]) {
      runs.push_back({layers.impacts[b], 0, of_class});
    }
    ++runs.back().batches;
  }
  return runs;
}

// Batches are only of layers that are chosen: a row for each run says so best, and the solver takes
// ages over 70,000 rows. Of a single layer, chosen or not, a few rows over many runs mean the same.
constexpr size_t kRowsPerLayer = 16;

// How many layers of each class have neurons on the device; empty where nothing is feasible.
std::vector<int64_t> ChooseLayers(const std::vector<LayerClass>& classes,
                                  const std::vector<std::vector<BatchRun>>& runs, int64_t least,
                                  int64_t fewest, int64_t most) {
  PlacementProgram program;
  const int memory = program.AddRow(static_cast<double>(fewest), static_cast<double>(most));
  const int layers_row = AddLayersRow(program, least, most);
  std::vector<int> columns;
  for (size_t c = 0; c < classes.size(); ++c) {
    const std::vector<double>& impacts = classes[c].impacts;
    const bool can_pay = least <= static_cast<int64_t>(impacts.size());
    double gain = 0;
    for (int64_t b = 0; can_pay && b < least; ++b) gain += impacts[static_cast<size_t>(b)];
    const auto layers = static_cast<int64_t>(classes[c].owners.size());
    std::vector<PlacementProgram::Term> chosen = {{memory, static_cast<double>(least)},
                                                  {layers_row, 1}};
    const size_t runs_per_row = layers == 1 ? DivideUp(runs[c].size(), kRowsPerLayer) : 1;
    for (size_t i = 0; i < runs[c].size(); ++i) {
      if (i % runs_per_row == 0) chosen.push_back({program.AddRow(-kNoLimit, 0), 0});
      const BatchRun& run = runs[c][i];
      chosen.back().factor -= static_cast<double>(run.batches);
      // Whole once the layers are: with those fixed the rows are nested (0011-placement.md).
      program.AddColumn(run.impact, static_cast<double>(run.batches * layers), false,
                        {{memory, 1}, {chosen.back().row, 1}});
    }
    columns.push_back(program.AddColumn(gain, can_pay ? static_cast<double>(layers) : 0, true,
                                        std::move(chosen)));
  }
  const std::vector<double> x = program.Solve();
  std::vector<int64_t> layers;
  for (size_t i = 0; i < columns.size() && !x.empty(); ++i) {
    layers.push_back(std::llround(x[static_cast<size_t>(columns[i])]));
  }
  return layers;
}

// Gives the chosen layers their least batches, then what is left of the memory to the best others.
std::vector<std::vector<int64_t>> FillLayers(const std::vector<int64_t>& chosen,
                                             const std::vector<std::vector<BatchRun>>& runs,
                                             int64_t least, int64_t most) {
  std::vector<std::vector<int64_t>> batches;  // by class, by chosen layer
  std::vector<BatchRun> candidates;
  int64_t room = most;
  for (size_t c = 0; c < chosen.size(); ++c) {
    batches.emplace_back(static_cast<size_t>(chosen[c]), least);
    room -= chosen[c] * least;
    if (chosen[c] > 0) candidates.insert(candidates.end(), runs[c].begin(), runs[c].end());
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const BatchRun& a, const BatchRun& b) { return a.impact > b.impact; });
  for (const BatchRun& run : candidates) {
    std::vector<int64_t>& layers = batches[run.of_class];
    const auto count = static_cast<int64_t>(layers.size());
    const int64_t taken = std::min(room, run.batches * count);
    room -= taken;
    for (int64_t i = 0; i < count; ++i) {
      layers[static_cast<size_t>(i)] += taken / count + (i < taken % count ? 1 : 0);
    }
  }
  return batches;
}

std::vector<int64_t> SolveByLayer(const PlacementProblem& problem, const DeviceLimits& limits) {
  const std::optional<int64_t> least_neurons = LeastNeurons(problem);
  std::vector<int64_t> device(problem.ffns.size(), 0);
  if (!least_neurons) {
    if (limits.least > 0) ThrowCommunication(limits, least_neurons);
    return device;
  }
  const int64_t least = DivideUp(*least_neurons, kPlacementBatch);
  const int64_t most = limits.most / kPlacementBatch;
  const std::vector<LayerClass> classes = ClassifyLayers(problem);
  std::vector<std::vector<BatchRun>> runs;
  for (size_t c = 0; c < classes.size(); ++c) runs.push_back(RunsBehind(classes[c], c, least));
  const std::vector<int64_t> chosen =
      ChooseLayers(classes, runs, least, DivideUp(limits.least, kPlacementBatch), most);
  if (chosen.empty()) ThrowCommunication(limits, least_neurons);
  const std::vector<std::vector<int64_t>> batches = FillLayers(chosen, runs, least, most);
  for (size_t c = 0; c < classes.size(); ++c) {
    for (size_t i = 0; i < batches[c].size(); ++i) {
      const std::vector<size_t>& owners = classes[c].owners[i];
      for (int64_t b = 0; b < batches[c][i]; ++b) {
        device[owners[static_cast<size_t>(b)]] += kPlacementBatch;
      }
    }
  }
  return device;
}

std::vector<int64_t> SolveUniform(const PlacementProblem& problem, const DeviceLimits& limits) {
  const auto num_ffns = static_cast<int64_t>(problem.ffns.size());
  int64_t neurons = problem.ffns.front().neurons;  // of the smallest FFN
  for (const PlacementFfn& ffn : problem.ffns) neurons = std::min(neurons, ffn.neurons);
  const int64_t fitting = limits.most / num_ffns / kPlacementBatch * kPlacementBatch;
  const int64_t each = limits.most >= neurons * num_ffns ? neurons : std::min(fitting, neurons);
  const std::optional<int64_t> least = LeastNeurons(problem);
  const int64_t ffns_of_layer = num_ffns / problem.num_layers();
  const bool pays = least && each > 0 && *least <= each * ffns_of_layer;
  if (limits.least > (pays ? each * num_ffns : 0)) ThrowCommunication(limits, least);
  return std::vector<int64_t>(problem.ffns.size(), pays ? each : 0);
}

bool HasWholeBatches(const PlacementProblem& problem) {
  return std::all_of(problem.ffns.begin(), problem.ffns.end(),
                     [](const PlacementFfn& ffn) { return ffn.neurons % kPlacementBatch == 0; });
}

// `grain`: neurons by which the placement could grow.
Placement Describe(const PlacementProblem& problem, std::vector<int64_t> device_neurons,
                   int64_t grain) {
  Placement placement;
  int64_t on_device = 0;
  for (size_t f = 0; f < problem.ffns.size(); ++f) {
    const std::vector<double>& impacts = problem.ffns[f].impacts;
    const auto there = static_cast<ptrdiff_t>(DivideUp(device_neurons[f], kPlacementBatch));
    placement.impact += std::accumulate(impacts.begin(), impacts.begin() + there, 0.0);
    placement.all_impact += std::accumulate(impacts.begin(), impacts.end(), 0.0);
    on_device += device_neurons[f];
  }
  const int64_t all = AllNeurons(problem);
  placement.device_bytes = static_cast<uint64_t>(on_device) * problem.neuron_bytes;
  placement.host_bytes = static_cast<uint64_t>(all - on_device) * problem.neuron_bytes;
  const int64_t room = LimitsOf(problem).most - on_device;
  placement.bound = on_device == all ? PlacementBound::kNone
                    : room < grain   ? PlacementBound::kDeviceMemory
                                     : PlacementBound::kCommunication;
  placement.device_neurons = std::move(device_neurons);
  return placement;
}

}  // namespace

PlacementFfn BatchNeurons(int64_t layer, std::span<const double> descending) {
  PlacementFfn ffn;
  ffn.layer = layer;
  ffn.neurons = static_cast<int64_t>(descending.size());
  for (size_t i = 0; i < descending.size(); i += kPlacementBatch) {
    const size_t end = std::min(descending.size(), i + kPlacementBatch);
    ffn.impacts.push_back(std::accumulate(descending.begin() + static_cast<ptrdiff_t>(i),
                                          descending.begin() + static_cast<ptrdiff_t>(end), 0.0));
  }
  return ffn;
}

std::optional<int64_t> LeastNeurons(const PlacementProblem& problem) {
  const auto bytes = static_cast<double>(problem.neuron_bytes);
  const double saving = problem.computed_share *
                        (bytes / problem.host_bytes_per_s - bytes / problem.device_bytes_per_s);
  if (saving < 0) return std::nullopt;
  if (problem.sync_seconds == 0) return 0;
  const double least = std::ceil(problem.sync_seconds / saving);
  if (!(least < kMostNeurons)) return std::nullopt;  // no saving: infinity
  return static_cast<int64_t>(least);
}

const char* PlacementBoundName(PlacementBound bound) {
  switch (bound) {
    case PlacementBound::kNone:
      return "none";
    case PlacementBound::kDeviceMemory:
      return "device memory";
    case PlacementBound::kCommunication:
      return "communication";
  }
  return "?";
}

Placement SolvePlacement(const PlacementProblem& problem, PlacementForm form) {
  CheckProblem(problem);
  const bool whole = HasWholeBatches(problem);
  if (form == PlacementForm::kByLayer && !whole) {
    ThrowProblem("batches are not equally large: layers cannot be counted");
  }
  const DeviceLimits limits = LimitsOf(problem);
  CheckLimits(problem, limits);
  if (form == PlacementForm::kUniform) {
    return Describe(problem, SolveUniform(problem, limits),
                    kPlacementBatch * static_cast<int64_t>(problem.ffns.size()));
  }
  const bool by_layer = form != PlacementForm::kByBatch && whole;
  return Describe(problem, by_layer ? SolveByLayer(problem, limits) : SolveByBatch(problem, limits),
                  kPlacementBatch);
}

}  // namespace hearth
