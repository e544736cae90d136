// The neurons of FFNs with planted sparsity (docs/synth.md).
//
//   gate row of neuron j = B rho_j - c_j u        up row likewise, correlated with the gate's
//   (drelu)
//
// B are the directions of the layer (planted_space.h), rho_j is a unit vector of few entries, and
// c_j puts the threshold where the neuron fires at its rate p_j, a power law over the neurons. The
// rates come from a sample of tokens in the layer's directions, not from a model of their
// distribution: topics are few, so that it is none that has a formula.
//
// A planted predictor (sparsity/predictor.h) looks along the same directions and a few more, which
// its neuron does not look at: they make it err as predictors of real models do.
//
//   down = directions of the layer, those of its neurons first      input: the normalized FFN input
//   up row of neuron j = rho_j, for drelu mixed with the up row's, and noise; bias from its
//   threshold
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/worker_team.h"
#include "prepare/synth/planted_options.h"
#include "prepare/synth/planted_space.h"
#include "tensor/dtype.h"

namespace hearth {

// What was found for the neurons of one FFN.
struct PlantedFfn {
  std::vector<int32_t> place;         // of each neuron among rates in descending order
  std::vector<float> gate_cut;        // c_j of its gate row
  std::vector<float> up_cut;          // of its up row; drelu only
  std::vector<float> predictor_bias;  // with predictors only
};

class PlantedModel {
 public:
  // Looks at a few neurons. `quant` is the type of the matrices, whose rounding is accounted for.
  // Throws Error(kInvalidArgument) as DecideShares does, and for a width that its directions fill.
  // With predictors the rest of the model is the same as without.
  PlantedModel(const ModelShape& shape, const PlantedOptions& options, DType quant, uint64_t seed,
               bool predictors = false);

  // Finds the thresholds of all neurons, with all threads; takes about 30 us per neuron and
  // thread. `between` is called on the calling thread, now and then, and may throw.
  void Calibrate(WorkerTeam& team, const std::function<void()>& between);

  const PlantedSpace& space() const { return space_; }
  const PlantedShares& shares() const { return shares_; }
  // P(active) that a place among the sorted neurons of an FFN was given.
  double ActiveRate(int64_t place) const { return active_rates_[static_cast<size_t>(place)]; }
  // [layer][expert]; after Calibrate.
  const PlantedFfn& Ffn(int64_t layer, int64_t expert) const {
    return ffns_[static_cast<size_t>(layer * experts_ + expert)];
  }
  bool plants_neurons() const { return shares_.rank > 0; }
  bool plants_router() const { return experts_ > 1; }
  // True where up rows are planted too, not random.
  bool plants_up() const { return plants_neurons() && is_drelu_; }
  // Inner width of predictors: a multiple of 32; 0 without predictors.
  int64_t predictor_rank() const { return has_predictors_ ? space_.directions() : 0; }

  // Rows of weights as float, out[hidden]; after Calibrate. Thread-safe.
  void GateRow(const PlantedBasis& basis, int64_t layer, int64_t expert, int64_t neuron,
               float* out) const;
  void UpRow(const PlantedBasis& basis, int64_t layer, int64_t expert, int64_t neuron,
             float* out) const;
  // The router's, out[hidden]: sticky, because it sees topics, and skewed.
  void RouterRow(int64_t layer, int64_t expert, float* out) const;
  // out[predictor_rank]; only with predictors.
  void PredictorRow(int64_t layer, int64_t expert, int64_t neuron, float* out) const;

  // Mean square of what attention and FFNs of all layers together add to the residual, where the
  // embedding's is 1.
  static constexpr double kBranchEnergy = 0.05;
  // Where neurons are planted: root mean square of what reaches down in a sample of tokens and of
  // neurons of the first layer.
  double activation_rms() const { return activation_rms_; }

 private:
  struct Draw;
  struct Samples;
  struct Cuts;
  class Projector;

  Draw DrawNeuron(int64_t layer, int64_t expert, int64_t neuron) const;
  Samples SamplesOf(int64_t layer) const;
  void CalibrateLayer(int64_t layer);
  Cuts CutsOf(Projector& projector, const Draw& draw, int64_t place) const;
  std::vector<int32_t> ShuffledPlaces(int64_t layer, int64_t expert) const;
  double RoundingVariance(int64_t layer) const;
  void MeasureActivation();

  const PlantedShares shares_;
  const bool is_drelu_;
  const bool has_predictors_;
  const double threshold_;  // of fatrelu
  const int64_t layers_, experts_, neurons_;
  const double rounding_energy_;  // of a quantized row, relative to the row's
  const uint64_t seed_;
  const PlantedSpace space_;
  std::vector<double> gate_rates_, active_rates_;  // by place
  std::vector<PlantedFfn> ffns_;
  double activation_rms_ = 0;
};

}  // namespace hearth
