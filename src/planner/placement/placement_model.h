// What a model asks of a placement, what a device offers, and how long a token takes with what came
// of it. Nothing here needs a device to be there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "planner/placement/placement.h"
#include "prepare/shapes/shapes.h"
#include "sparsity/profile.h"
#include "tensor/dtype.h"

namespace hearth {

// P1 §8.3.4 and Table 6: predictors' share of a model's weights, on average.
inline constexpr double kPredictorShare = 0.0709;

struct PlacementModel {
  std::string name;
  int64_t num_layers = 0;
  int64_t ffns_per_layer = 1;  // experts
  double computed_share = 1;   // of these, that a token computes
  int64_t hidden_size = 0;
  int64_t neurons = 0;        // of one FFN
  uint64_t neuron_bytes = 0;  // its rows of gate and up and column of down; the mean over layers
  // What every token reads beside neurons: attention, norms, routers, predictors, the output
  // matrix.
  uint64_t dense_bytes = 0;
  uint64_t embedding_bytes = 0;  // looked up by row, on the host; 0 where tied to the output matrix
  // By FFN, layer after layer: how often each neuron fires per token, descending.
  std::vector<std::vector<double>> rates;
  bool rates_are_assumed = false;  // by a power law, not measured

  uint64_t ffn_bytes() const {
    return neuron_bytes * static_cast<uint64_t>(num_layers * ffns_per_layer * neurons);
  }
};

// Bytes of a shape's weights beside neurons and embedding.
struct DenseSizes {
  uint64_t attention_bytes = 0;  // of a layer, with norms and router
  uint64_t output_bytes = 0;
  uint64_t predictor_bytes = 0;  // of all layers; taken to be kPredictorShare of the rest
};
DenseSizes DenseSizesOf(const ModelShape& shape, DType quant);

// Rates of a model of which only the shape is known: the power law that `synth` plants.
struct AssumedRates {
  double active = 0.10;        // mean P(active) of an FFN's neurons
  std::optional<double> skew;  // share of them with 80% of activations; nothing: as synth
};

// Predictors are taken to add 7.09% to the model (P1 §8.3.4). Throws
// Error(kInvalidArgument) for rates or a type that make no sense.
PlacementModel PlacementModelOf(const ModelShape& shape, DType quant, const AssumedRates& assumed);

// Rates come from the profile, or, where there is none, from the packed file itself. Throws
// Error(kNotFound) where neither has any, Error(kInvalidArgument) for another model's profile.
PlacementModel PlacementModelOf(const GgufFile& file, const ModelProfile* profile);

struct PlacementMachine {
  uint64_t device_bytes = 0;
  double device_bytes_per_s = 0;
  std::optional<uint64_t> host_bytes;  // nothing: as much as is needed
  double host_bytes_per_s = 0;
  // How fast flash delivers single neurons; 0: none may stay there.
  double flash_bytes_per_s = 0;
  double link_bytes_per_s = 0;
  double link_seconds = 0;  // what starting one transfer takes, beside its bytes
};

// The same where all FFNs of a layer have the same number of neurons on the device, as an engine
// needs: a layer has one FFN, and each of its neurons stands for one of every expert.
PlacementModel ByLayer(PlacementModel model);

// What every token reads beside neurons.
enum class DensePlace : uint8_t { kAuto, kDevice, kHost };  // kAuto: where tokens take less time
const char* DensePlaceName(DensePlace place);               // "auto", "device", "host"
std::optional<DensePlace> DensePlaceFromName(std::string_view name);

// Of one token, by bytes over bandwidths (P1 equation 5) and frequencies (equation 1): both units
// compute a layer's neurons at the same time, flash is read meanwhile, and the units wait for each
// other once where both have a part.
struct TokenTime {
  double dense_seconds = 0;
  double ffn_seconds = 0;   // of each layer that of the slowest of device, host and flash
  double sync_seconds = 0;  // of all layers

  double total() const { return dense_seconds + ffn_seconds + sync_seconds; }
};

struct PlacedModel {
  PlacementProblem problem;
  Placement placement;
  bool dense_on_device = false;
  // How many neurons of every FFN the host keeps, after those on the device. The others stay on
  // flash and are read each time that they fire. Nothing: the host keeps all.
  std::optional<int64_t> host_neurons;
  uint64_t flash_bytes = 0;  // of the neurons that stay there
  double flash_impact = 0;   // of them, as Placement::impact
  TokenTime time;
  TokenTime host_time;  // were there no device
};

// T_sync of one layer: a vector of hidden_size floats to the other unit, and one back.
double SyncSeconds(int64_t hidden_size, const PlacementMachine& machine);

// Where device and host have no room for all neurons, and some may stay on flash, every FFN has the
// same number of neurons on the device (PlacementForm::kUniform), as an engine needs that streams
// the others. Throws as SolvePlacement does, and Error(kOutOfBudget) where what is no neuron has no
// room.
PlacedModel PlaceModel(const PlacementModel& model, const PlacementMachine& machine,
                       DensePlace dense, PlacementForm form = PlacementForm::kShortest);

}  // namespace hearth
