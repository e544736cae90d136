// How much a forward pass has to do at least: bytes that must be read and int8 products that must
// be made. Speeds are held against it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/model_spec.h"
#include "model/weights.h"
#include "pass/pass_op.h"
#include "sparsity/predictor.h"
#include "tensor/kv_layout.h"

namespace hearth {

struct OpWork {
  double bytes = 0;       // of weights and of the KV cache
  double int8_macs = 0;   // multiply-adds of quantized weights
  double float_macs = 0;  // of float weights; attention's are left out

  OpWork& operator+=(const OpWork& other);
};
using WorkByOp = std::array<OpWork, kNumPassOps>;

// What FFNs of single neurons compute for a token, all layers together: rows of neurons, on
// average, and the predictors that are asked (null: none).
struct FfnActivity {
  double gate = 0;
  double up = 0;
  double down = 0;
  const ModelPredictors* predictors = nullptr;
  // By layer, which share of the experts that a token chooses is computed; empty: all.
  std::span<const double> experts_here = {};
};

// New tokens of one sequence in one pass.
struct EstimatedPass {
  int64_t tokens = 1;
  int64_t context = 0;  // tokens in the cache before
  int64_t logit_rows = 1;
  KvCodec kv_codec = KvCodec::kF16;
  FfnActivity ffn;
};

// Every matrix once, of experts those that the tokens choose: k of n for one token, for several as
// many different ones as choices at random would hit. Of single neurons what pass.ffn says, but
// several tokens read none more than once. Rows of the embedding and activations are
// left out: they are small, and the latter stay in the caches.
WorkByOp EstimatePass(const ModelSpec& spec, const ModelWeights& weights,
                      const EstimatedPass& pass);

// A prompt in an empty context, in passes of at most `batch_tokens`, with logits of its last token.
WorkByOp EstimatePrompt(const ModelSpec& spec, const ModelWeights& weights, int64_t tokens,
                        int64_t batch_tokens, KvCodec kv_codec, const FfnActivity& ffn);

OpWork Total(const WorkByOp& work);

// The shortest time in which a machine of these speeds can do the work, when reading and computing
// overlap. Without a known bandwidth (0) reading counts as free.
double FloorSeconds(const OpWork& work, double bytes_per_second, double int8_macs_per_second);

}  // namespace hearth
