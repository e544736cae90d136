// What the blocks of a pass hand on to each other: matrices of floats with a row per token.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_spec.h"
#include "pass/pass_shape.h"
#include "pass/scratch_arena.h"
#include "tensor/view.h"

namespace hearth {

// How wide activations are: of every kind, what the widest layer needs.
struct PassWidths {
  PassWidths(const ModelSpec& spec, const PassLimits& limits, int threads);

  int64_t tokens = 0;
  int threads = 1;
  int64_t hidden = 0;
  bool parallel_attention = false;
  int64_t q = 0;
  int64_t kv = 0;
  int64_t ffn = 0;
  int64_t experts = 0;     // 0: no mixture
  int64_t shared = 0;      // neurons of the FFN beside the experts
  int64_t ropes = 0;       // rotary embeddings that layers differ in
  int64_t rope_pairs = 0;  // of any
  int64_t attention_thread = 0;
  int64_t attention_partial = 0;
  bool ffn_of_neurons = false;
  int64_t tokens_together = 1;
  // Of FFNs that have a part on a device: by layer, so many neurons; and the most of any layer
  // there and on the processor.
  std::vector<int64_t> device_neurons;
  bool sums_on_device = false;  // PassLimits has these two
  bool layers_on_device = false;
  int64_t most_on_device = 0;
  int64_t most_beside_device = 0;

  // Of any matrix product.
  int64_t widest_input() const;
};

// Views of max_tokens rows, unless said otherwise; those that a model has no use for are empty.
struct Activations {
  FloatView hidden;         // the residual stream
  FloatView normed;         // what a block reads
  FloatView block_out;      // what it adds to the residual stream
  FloatView attention_out;  // what attention adds, where it waits for the FFN beside it

  // Attention.
  FloatView q, k, v;
  FloatView other_k, other_v;  // of every other layer, where layers stay on a device
  FloatView attended;
  FloatView cos,
      sin;  // of the positions: max_tokens rows of each rotary embedding, a column per pair
  FloatView attention_scratch;  // a row per thread
  FloatView attention_partial;  // one row

  // FFNs as matrices.
  FloatView gate, up;

  // Mixtures.
  FloatView router;                              // the probabilities of experts
  FloatView gathered;                            // tokens of one expert, packed
  FloatView expert_out;                          // what experts make of their tokens
  FloatView shared_gate, shared_up, shared_out;  // of the FFN beside them

  void Lay(const PassWidths& widths, ScratchLayout& layout);

  // The same for the first `rows` tokens; of gathered, expert_out, gate and up, which experts fill
  // as they like, all; and all angles.
  Activations FirstRows(int64_t rows) const;
};

}  // namespace hearth
