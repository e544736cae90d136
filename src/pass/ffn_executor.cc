#include "pass/ffn_executor.h"

#include "pass/matrix_ffn.h"
#include "pass/neuron_ffn.h"
#include "pass/streamed_neuron_ffn.h"

namespace hearth {

std::unique_ptr<FfnExecutor> MakeFfnExecutor(const PassContext& context, const PassWidths& widths,
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

uint64_t FfnExecutorBytes(const PassWidths& widths) {
  return widths.ffn_of_neurons ? NeuronOperators::ChargedBytes(widths) : 0;
}

}  // namespace hearth
