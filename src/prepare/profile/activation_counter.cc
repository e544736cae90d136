#include "prepare/profile/activation_counter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ops/silent_gates.h"

namespace hearth {
namespace {

// Neurons that a thread counts at a time: their sums stay in the first-level cache while the rows
// of the batch go by, and a row's piece is whole cache lines.
constexpr int64_t kNeuronsAtATime = 256;

// counts[j] += rows of `values` for which fires(values[row][begin + j]); j < size.
template <typename Fires>
void CountRows(const FloatView& values, int64_t begin, int64_t size, Fires fires,
               uint64_t* counts) {
  std::array<uint32_t, kNeuronsAtATime> sums = {};
  for (int64_t r = 0; r < values.rows; ++r) {
    const float* row = values.row(r) + begin;
    for (int64_t j = 0; j < size; ++j) sums[static_cast<size_t>(j)] += fires(row[j]) ? 1 : 0;
  }
  for (int64_t j = 0; j < size; ++j) counts[j] += sums[static_cast<size_t>(j)];
}

}  // namespace

ActivationCounter::ActivationCounter(Compute& compute, const ModelSpec& spec, ModelProfile& profile,
                                     std::function<void(int64_t layer)> after_ffn)
    : compute_(compute),
      spec_(spec),
      profile_(profile),
      after_ffn_(std::move(after_ffn)),
      neurons_(static_cast<size_t>(profile.intermediate_size)) {}

void ActivationCounter::OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t>,
                                    FloatView gate, FloatView) {
  FfnProfile& ffn = profile_.At(layer, expert);
  const FfnSpec& spec = spec_.layers[static_cast<size_t>(layer)].ffn;
  const SilentGates silent = SilentGatesOf(spec.activation, spec.threshold);
  compute_.team().ParallelFor(gate.cols, kNeuronsAtATime, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; j += kNeuronsAtATime) {
      CountRows(
          gate, j, std::min(kNeuronsAtATime, end - j),
          [silent](float g) { return !silent.Contains(g); }, ffn.gate_fired.data() + j);
    }
  });
}

void ActivationCounter::OnFfnActivation(int64_t layer, int64_t expert,
                                        std::span<const int64_t> tokens, FloatView activation) {
  FfnProfile& ffn = profile_.At(layer, expert);
  ffn.tokens += tokens.size();
  compute_.team().ParallelFor(
      activation.cols, kNeuronsAtATime, [&](int64_t begin, int64_t end, int) {
        for (int64_t j = begin; j < end; j += kNeuronsAtATime) {
          CountRows(
              activation, j, std::min(kNeuronsAtATime, end - j), [](float a) { return a != 0.0f; },
              ffn.active.data() + j);
        }
        // Token by token in order, so that sums do not depend on batches or threads.
        for (int64_t r = 0; r < activation.rows; ++r) {
          const float* row = activation.row(r);
          for (int64_t j = begin; j < end; ++j) {
            ffn.mass[static_cast<size_t>(j)] += static_cast<double>(std::fabs(row[j]));
          }
        }
      });
  if (trace_ != nullptr) Trace(expert, tokens, activation);
  if (after_ffn_) after_ffn_(layer);
}

void ActivationCounter::OnFfnNeurons(const NeuronObservation& observed) {
  FfnProfile& ffn = profile_.At(observed.layer, observed.expert);
  ++ffn.tokens;
  for (const int32_t neuron : observed.fired) ++ffn.gate_fired[static_cast<size_t>(neuron)];
  for (size_t i = 0; i < observed.active.size(); ++i) {
    const auto neuron = static_cast<size_t>(observed.active[i]);
    // One without a threshold to stay under may still have a product of zero.
    if (observed.factors[i] == 0.0f) continue;
    ++ffn.active[neuron];
    ffn.mass[neuron] += static_cast<double>(std::fabs(observed.factors[i]));
  }
  if (trace_ != nullptr && observed.token < trace_tokens_) {
    trace_->Append(observed.token, static_cast<int32_t>(observed.expert), observed.active);
  }
  if (after_ffn_) after_ffn_(observed.layer);
}

void ActivationCounter::Trace(int64_t expert, std::span<const int64_t> tokens,
                              FloatView activation) {
  for (size_t r = 0; r < tokens.size() && tokens[r] < trace_tokens_; ++r) {
    const float* row = activation.row(static_cast<int64_t>(r));
    size_t count = 0;
    for (int64_t j = 0; j < activation.cols; ++j) {
      neurons_[count] = static_cast<int32_t>(j);
      count += row[j] != 0.0f ? 1 : 0;
    }
    trace_->Append(tokens[r], static_cast<int32_t>(expert), std::span(neurons_).first(count));
  }
}

}  // namespace hearth
