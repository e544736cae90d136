#include "measure/quality.h"

#include <algorithm>
#include <cmath>

#include "ops/silent_gates.h"

namespace hearth {
namespace {

std::optional<double> Share(double part, double whole) {
  return whole > 0 ? std::optional(part / whole) : std::nullopt;
}
std::optional<double> Share(int64_t part, int64_t whole) {
  return Share(static_cast<double>(part), static_cast<double>(whole));
}

}  // namespace

void QualityMeter::OnFfnGateUp(int64_t layer, int64_t, std::span<const int64_t>, FloatView gate,
                               FloatView) {
  const FfnSpec& ffn = spec_.layers[static_cast<size_t>(layer)].ffn;
  const SilentGates silent = SilentGatesOf(ffn.activation, ffn.threshold);
  for (int64_t r = 0; r < gate.rows; ++r) {
    fired_ += std::count_if(gate.row(r), gate.row(r) + gate.cols,
                            [silent](float g) { return !silent.Contains(g); });
  }
}

void QualityMeter::OnFfnActivation(int64_t, int64_t, std::span<const int64_t>, FloatView a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    active_ += a.cols - std::count(a.row(r), a.row(r) + a.cols, 0.0f);
  }
  neurons_ += a.rows * a.cols;
  computed_ += a.rows * a.cols;
}

void QualityMeter::OnFfnNeurons(const NeuronObservation& observed) {
  const int64_t neurons = observed.all.gate;
  neurons_ += neurons;
  fired_ += observed.all.up;
  active_ += observed.all.active;
  if (!observed.listed) {
    computed_ += observed.skips_silent ? observed.all.active : neurons;
    return;
  }
  neurons_of_lists_ += neurons;
  listed_ += static_cast<int64_t>(observed.listed->size());
  auto next = observed.listed->begin();
  int64_t found = 0;
  for (size_t i = 0; i < observed.active.size(); ++i) {
    const double mass = std::abs(static_cast<double>(observed.factors[i]));
    mass_ += mass;
    next = std::lower_bound(next, observed.listed->end(), observed.active[i]);
    if (next == observed.listed->end() || *next != observed.active[i]) continue;
    ++found;
    listed_mass_ += mass;
  }
  listed_and_active_ += found;
  computed_ += found;
}

void QualityMeter::CountTop1(bool agrees) {
  ++top1_;
  top1_agree_ += agrees ? 1 : 0;
}

Quality QualityMeter::Result() const {
  Quality quality;
  if (CanSkipNeurons(MainFfn(spec_).activation)) {
    quality.active = Share(active_, neurons_);
    quality.gate = Share(fired_, neurons_);
  }
  quality.computed = Share(computed_, neurons_).value_or(0);
  quality.listed = Share(listed_, neurons_of_lists_);
  quality.recall = Share(listed_mass_, mass_);
  quality.precision = Share(listed_and_active_, listed_);
  quality.top1_agreement = Share(top1_agree_, top1_);
  return quality;
}

}  // namespace hearth
