// The observer behind `hearth profile`: adds what the neurons of each FFN do to a profile, and
// hands the active ones to a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ops/compute.h"
#include "pass/transformer_pass.h"
#include "sparsity/profile.h"
#include "sparsity/trace.h"

namespace hearth {

class ActivationCounter : public PassObserver {
 public:
  // `profile` has its FFNs; it, the model's spec and the team must outlive the counter. after_ffn,
  // where given, is called after every FFN with its layer.
  ActivationCounter(Compute& compute, const ModelSpec& spec, ModelProfile& profile,
                    std::function<void(int64_t layer)> after_ffn = {});

  // From now on the first `tokens` rows of every batch go to `trace` too, which has begun the
  // batch. Null: none.
  void SetTrace(TraceWriter* trace, int64_t tokens) {
    trace_ = trace;
    trace_tokens_ = tokens;
  }

  void OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView gate,
                   FloatView up) override;
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView activation) override;
  void OnFfnNeurons(const NeuronObservation& observed) override;

 private:
  void Trace(int64_t expert, std::span<const int64_t> tokens, FloatView activation);

  Compute& compute_;
  const ModelSpec& spec_;
  ModelProfile& profile_;
  std::function<void(int64_t)> after_ffn_;
  TraceWriter* trace_ = nullptr;
  int64_t trace_tokens_ = 0;
  std::vector<int32_t> neurons_;  // active ones of a token
};

}  // namespace hearth
