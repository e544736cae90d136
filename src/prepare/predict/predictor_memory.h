// What making predictors takes of memory beside an engine, known before anything is begun.
#pragma once

#include <cstdint>

#include "model/model_spec.h"
#include "model/weights.h"
#include "prepare/predict/predictor_maker.h"

namespace hearth {

class PredictorMemory {
 public:
  // Of predictors made from so many tokens. model_bytes: of the weights as they run; matrix_bytes:
  // of gate and up of one FFN that are read for the purpose, 0 where they are in memory anyhow.
  PredictorMemory(const ModelSpec& spec, const PredictorOptions& options, uint64_t model_bytes,
                  uint64_t matrix_bytes, int64_t tokens);

  // What Engine::MatrixOf copies of gate and up where they are streamed, by their types and shapes.
  static uint64_t CopiedBytes(const LayerWeights& layer);

  // All finished predictors where none passes this rank; and as much again when they are tried at
  // the end.
  uint64_t KeptBytes(int64_t rank) const;
  // Samples of as many layers as `most` has room for, but of one at least and of all at most.
  uint64_t SampleBytes(uint64_t most) const;
  // Making one predictor of at most this rank, its data included and its samples left out.
  uint64_t WorkBytes(int64_t rank) const;
  // The rank that an even share of the bytes has room for; 0: none.
  int64_t EvenRank() const { return even_rank_; }
  // The largest rank that can be made and kept within `bytes`, a multiple of 32 up to the hidden
  // size; 0: none.
  int64_t RankWithin(uint64_t bytes) const;

 private:
  int64_t hidden_;
  int64_t neurons_;
  int64_t experts_;
  int64_t fit_tokens_;
  int64_t held_tokens_;
  bool may_train_;
  uint64_t matrix_bytes_;
  int64_t num_layers_;
  DType dtype_;
  uint64_t most_kept_;      // bytes
  uint64_t layer_samples_;  // bytes
  int64_t even_rank_;
};

// Float32 weights of predictors that are alive at a time while one of this rank is made: the best
// so far, what training starts from, what it came to and what it tries.
uint64_t MadePredictorBytes(int64_t rank, int64_t hidden, int64_t neurons);

}  // namespace hearth
