#include "ops/silent_gates.h"

#include <cmath>
#include <limits>

namespace hearth {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kKernelMargin = 1e-3;
// Where SiLU is smallest.
constexpr double kLowestGate = -1.2784645;
// So far below zero that its SiLU is no float.
constexpr double kFarGate = -200;
constexpr int kHalvings = 40;

double AbsSilu(double gate) { return std::abs(gate / (1 + std::exp(-gate))); }

// Where AbsSilu is `value`, between a gate where it is at most that and one where it is at least
// that. The side that is returned is the first.
double GateOf(double value, double at_most, double at_least) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (at_most + at_least) / 2;
    (AbsSilu(middle) <= value ? at_most : at_least) = middle;
  }
  return at_most;
}

SilentGates OfThresholdedSilu(double threshold) {
  const double value = threshold * (1 - kKernelMargin);
  const auto to = static_cast<float>(GateOf(value, 0, value + 1));
  if (value >= AbsSilu(kLowestGate)) return {to, kInfinity, -kInfinity};
  return {static_cast<float>(GateOf(value, kFarGate, kLowestGate)),
          static_cast<float>(GateOf(value, 0, kLowestGate)), to};
}

}  // namespace

bool CanSkipNeurons(FfnActivation activation) {
  return activation != FfnActivation::kSilu && activation != FfnActivation::kGelu &&
         activation != FfnActivation::kGeluErf && activation != FfnActivation::kClampedSwiglu;
}

SilentGates SilentGatesOf(FfnActivation activation, float threshold) {
  switch (activation) {
    case FfnActivation::kThresholdedSilu:
      return OfThresholdedSilu(static_cast<double>(threshold));
    case FfnActivation::kFatRelu:
      return {threshold, kInfinity, -kInfinity};
    case FfnActivation::kSilu:
    case FfnActivation::kGelu:
    case FfnActivation::kGeluErf:
    case FfnActivation::kClampedSwiglu:
    case FfnActivation::kRelu:
    case FfnActivation::kDRelu:
      break;
  }
  return {0, kInfinity, -kInfinity};
}

}  // namespace hearth
