// The FFN of a layer, or its mixture of experts, as a block of the pass.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/experts.h"
#include "pass/activations.h"
#include "pass/device_ffn_sum.h"
#include "pass/ffn_executor.h"
#include "pass/pass_context.h"

namespace hearth {

// One thread at a time. Allocates nothing that grows with the model after its construction.
class FfnBlock {
 public:
  // Charges DeviceFfnSum::ChargedBytes. Throws Error(kOutOfBudget).
  FfnBlock(const PassContext& context, const PassWidths& widths, Budget& budget,
           FfnExecutor& executor);

  // Of the calls that follow; the executor is told by itself.
  void Begin(const FfnPass& pass) { on_device_.Begin(pass); }

  // Before the attention of a layer: where its router reads `hidden` as it is now, chooses the
  // experts of Run, so that those on storage are read while attention is computed.
  void RouteBeforeAttention(int64_t layer, const Activations& a);
  // block_out = ffn(norm(hidden)). Throws what the executor does, and Error(kIo) where a device is
  // lost.
  void Run(int64_t layer, const Activations& a);
  // A dense layer is computed elsewhere: tells the executor that it comes and goes.
  void PassBy(int64_t layer);

 private:
  void RunDense(int64_t layer, const Activations& a);
  void RunExperts(int64_t layer, const Activations& a);
  // By the products of the context's input. Begins the layer of the executor.
  void Route(int64_t layer, const Activations& a);
  void AddExpert(int32_t expert, const Activations& a);
  void AddShared(int64_t layer, const Activations& a);
  // Launches what is on a device and computes the rest.
  void ComputeFfns(int64_t layer, const Activations& a);

  const PassContext& context_;
  FfnExecutor& executor_;
  DeviceFfnSum on_device_;
  std::vector<int64_t> all_rows_;  // 0, 1, 2, ...
  std::vector<ExpertLoad> loads_;  // rows routed to each expert
  std::vector<int32_t> used_;      // of the processor's those with rows, as they are computed
  std::vector<FloatView> expert_outputs_;  // of those, in expert_out
  bool keeps_outputs_ = false;             // all of them, until the last one is there
};

}  // namespace hearth
