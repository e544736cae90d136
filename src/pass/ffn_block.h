// The FFN of a layer, or its mixture of experts, as a block of the pass.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/experts.h"
#include "pass/activations.h"
#include "pass/ffn_executor.h"
#include "pass/pass_context.h"

namespace hearth {

// One thread at a time. Allocates nothing that grows with the model after its construction.
class FfnBlock {
 public:
  FfnBlock(const PassContext& context, const PassWidths& widths, FfnExecutor& executor);

  // Before the attention of a layer: where its router reads `hidden` as it is now, chooses the
  // experts of Run, so that those on storage are read while attention is computed.
  void RouteBeforeAttention(int64_t layer, const Activations& a);
  // block_out = ffn(norm(hidden)).
  void Run(int64_t layer, const Activations& a);

 private:
  void RunDense(int64_t layer, const Activations& a);
  void RunExperts(int64_t layer, const Activations& a);
  // By the products of the context's input. Begins the layer of the executor.
  void Route(int64_t layer, const Activations& a);
  void AddExpert(int32_t expert, const Activations& a);
  void AddShared(int64_t layer, const Activations& a);

  const PassContext& context_;
  FfnExecutor& executor_;
  std::vector<int64_t> all_rows_;          // 0, 1, 2, ...
  std::vector<ExpertLoad> loads_;          // rows routed to each expert
  std::vector<int32_t> used_;              // experts with rows, as they are computed
  std::vector<FloatView> expert_outputs_;  // of those, in expert_out
  bool keeps_outputs_ = false;             // all of them, until the last one is there
};

}  // namespace hearth
