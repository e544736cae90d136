// How the FFNs of a model are computed: in memory or read meanwhile, as matrices or neuron by
// neuron. One interface; nobody outside asks which one it is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "accel/device_ffns.h"
#include "base/budget.h"
#include "ops/sparse_ffn.h"
#include "pass/activations.h"
#include "pass/pass_context.h"
#include "pass/pass_observer.h"
#include "pipeline/extents/streamed_matrices.h"
#include "pipeline/neuron_map.h"
#include "pipeline/streamed_ffns.h"
#include "sparsity/selector.h"

namespace hearth {

// What a pass says of all its FFNs.
struct FfnPass {
  PassKind kind = PassKind::kPrefill;
  int64_t rows = 0;
  FloatView residual;  // what FFN blocks add to, a row per row of the pass
  ActivationSelector* selector = nullptr;
  PassObserver* observer = nullptr;  // null: nobody looks
};

// One FFN, of the rows `tokens` of the pass, whose normed states the context's input has packed.
struct FfnCall {
  int64_t layer = 0;
  int64_t expert = 0;
  std::span<const int64_t> tokens;
  FloatView out;  // [tokens][hidden]
};

// One thread at a time. Calls come as Begin, for each layer (BeginLayer, Run for each expert,
// EndLayer), End; after an exception with the next Begin.
class FfnExecutor {
 public:
  virtual ~FfnExecutor() = default;
  // Throws Error(kIo) where a file was truncated or replaced.
  virtual void Begin(const FfnPass& pass) = 0;
  virtual void End() noexcept {}
  // The FFNs of a layer that will be run, distinct and ascending; before the layer's attention
  // where its router reads what that reads. Where `reorder`, those that should be run first are put
  // first.
  virtual void BeginLayer(int64_t /*layer*/, std::span<int32_t> /*experts*/, bool /*reorder*/) {}
  virtual void EndLayer() {}
  // Whether experts are best run in an order that the executor chooses.
  virtual bool has_order() const { return false; }
  // Throws Error(kIo), Error(kCorrupt) where it reads; nothing is in flight then.
  virtual void Run(const FfnCall& call) = 0;

  // Between ops of other blocks, so that the disk does not run out of reads.
  virtual void AfterOp(PassOp /*op*/) noexcept {}
  // Whether threads wait for reads, so that the one that runs the pass should stay where it is.
  virtual bool waits() const { return false; }

  // Single neurons computed so far, over all passes.
  virtual SparseFfnCounts counts() const { return {}; }
  // Draws what single neurons do in later passes into `map`, which must live as long; null ends
  // that.
  virtual void Watch(NeuronMap* /*map*/) {}
};

// Weights that are not all in memory: FFNs, with at most one of the first two, and embeddings.
struct StreamedWeights {
  StreamedFfns* neurons = nullptr;       // of a packed model
  StreamedMatrices* matrices = nullptr;  // of another
  // Of a packed model, the first neurons of FFNs, which `neurons` and the model's weights lack.
  accel::DeviceFfns* on_device = nullptr;
  RowTable* embedding = nullptr;  // the token embedding, where the model's weights lack it
  // Of a model that is not packed, what is on a device, which `matrices` and the model's weights
  // lack.
  const DeviceWeights* device_weights = nullptr;
};

// Everything referred to must outlive the executor; of `activations`, gate and up are its own.
// Charges FfnExecutorBytes. Throws Error(kOutOfBudget).
std::unique_ptr<FfnExecutor> MakeFfnExecutor(const PassContext& context, const PassWidths& widths,
                                             Budget& budget, const Activations& activations,
                                             const StreamedWeights& streamed);
uint64_t FfnExecutorBytes(const PassWidths& widths);

}  // namespace hearth
