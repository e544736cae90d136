// Who sees intermediate results of passes; for measurements and tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ops/sparse_ffn.h"
#include "tensor/view.h"

namespace hearth {

// What an FFN of single neurons (a packed file's) does for one token.
struct NeuronObservation {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t token = 0;  // row of the pass
  // Neurons that were to be computed, ascending; nothing means all.
  std::optional<std::span<const int32_t>> listed;
  bool skips_silent = false;  // those whose gate does not fire are left out
  // What all neurons do, listed or not: all.up gates fire, those of `fired`; these are active, by
  // these factors. Ascending.
  SparseFfnCounts all;
  std::span<const int32_t> fired;
  std::span<const int32_t> active;
  std::span<const float> factors;
};

// Inputs of matrices that are no FFN's own.
enum class MatrixInput : uint8_t { kAttentionQkv, kAttentionOutput, kSharedGateUp, kSharedDown };

// Called on the thread that runs the pass, for every FFN that it computes, in the order of the
// functions. `tokens` are the rows of the pass that the FFN computes, ascending; the other
// arguments have a row for each of them, but for the residual, which has a row for every row of the
// pass. Valid during the call.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // residual: what enters the FFN block, before its norm; input: what gate and up multiply.
  virtual void OnFfnInput(int64_t /*layer*/, int64_t /*expert*/,
                          std::span<const int64_t> /*tokens*/, FloatView /*residual*/,
                          FloatView /*input*/) {}
  // Products of gate and up, [tokens.size()][intermediate_size], before the activation.
  virtual void OnFfnGateUp(int64_t /*layer*/, int64_t /*expert*/,
                           std::span<const int64_t> /*tokens*/, FloatView /*gate*/,
                           FloatView /*up*/) {}
  // What down multiplies, likewise.
  virtual void OnFfnActivation(int64_t /*layer*/, int64_t /*expert*/,
                               std::span<const int64_t> /*tokens*/, FloatView /*activation*/) {}
  // Of an FFN of single neurons instead of the two above, token by token.
  virtual void OnFfnNeurons(const NeuronObservation& /*observed*/) {}
  // What a matrix multiplies, a row for every row of the pass.
  virtual void OnMatrixInput(int64_t /*layer*/, MatrixInput /*which*/, FloatView /*input*/) {}
  // Whether OnFfnGuess is called, of models that are no mixtures and where neurons are predicted:
  // after OnFfnInput of a layer, token by token, with what the FFN of the layer after it will
  // probably list, ascending (what lookahead would read).
  virtual bool wants_guesses() const { return false; }
  virtual void OnFfnGuess(int64_t /*layer*/, int64_t /*token*/,
                          std::span<const int32_t> /*neurons*/) {}
};

}  // namespace hearth
