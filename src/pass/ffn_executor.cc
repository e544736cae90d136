#include "pass/ffn_executor.h"

#include <utility>

#include "pass/hybrid_ffn.h"
#include "pass/matrix_ffn.h"
#include "pass/neuron_ffn.h"
#include "pass/streamed_neuron_ffn.h"

namespace hearth {

namespace {

std::unique_ptr<FfnExecutor> MakeProcessorFfn(const PassContext& context, const PassWidths& widths,
                                              Budget& budget, const Activations& activations,
                                              const StreamedWeights& streamed) {
  if (streamed.neurons != nullptr) {
    return std::make_unique<StreamedNeuronFfn>(context, widths, budget, *streamed.neurons);
  }
  if (widths.ffn_of_neurons) return std::make_unique<ResidentNeuronFfn>(context, widths, budget);
  if (streamed.matrices != nullptr) {
    return std::make_unique<StreamedMatrixFfn>(context, activations.gate, activations.up,
                                               *streamed.matrices);
  }
  return std::make_unique<ResidentMatrixFfn>(context, activations.gate, activations.up);
}

}  // namespace

std::unique_ptr<FfnExecutor> MakeFfnExecutor(const PassContext& context, const PassWidths& widths,
                                             Budget& budget, const Activations& activations,
                                             const StreamedWeights& streamed) {
  if (streamed.on_device == nullptr) {
    return MakeProcessorFfn(context, widths, budget, activations, streamed);
  }
  std::unique_ptr<FfnExecutor> rest;
  if (widths.most_beside_device > 0) {
    rest = MakeProcessorFfn(context, widths, budget, activations, streamed);
  }
  return std::make_unique<HybridFfn>(context, widths, budget, *streamed.on_device, std::move(rest));
}

uint64_t FfnExecutorBytes(const PassWidths& widths) {
  if (!widths.ffn_of_neurons) return 0;
  if (widths.device_neurons.empty()) return NeuronOperators::ChargedBytes(widths);
  return (widths.most_beside_device > 0 ? NeuronOperators::ChargedBytes(widths) : 0) +
         HybridFfn::ChargedBytes(widths);
}

}  // namespace hearth
