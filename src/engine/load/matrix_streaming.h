// How a model that is not packed and does not fit into its budget is held: which extents of its
// FFNs' matrices stay in memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "engine/load/model.h"
#include "engine/load/neuron_streaming.h"
#include "format/gguf.h"
#include "pipeline/extents/streamed_matrices.h"
#include "plan/extent_plan.h"

namespace hearth {

// Takes the FFNs out of a plan that holds them, so that they are streamed instead.
class StreamedFfnMatrices {
 public:
  static StreamedFfnMatrices TakeFrom(LoadPlan& plan, const GgufFile& file);

  const ExtentMap& map() const { return map_; }

  // The least that streaming takes in all.
  uint64_t SmallestBytes(const StreamingOptions& options) const;
  // What fits into `bytes`. Throws Error(kOutOfBudget) below SmallestBytes.
  ExtentPlan PlanFor(uint64_t bytes, const StreamingOptions& options) const;
  // Bytes of the matrices, as they lie in the files, that a plan does not keep while contexts are
  // short.
  uint64_t BytesOutside(const ExtentPlan& plan) const;
  // Adds what it will charge to a ledger; KV pages that are lent replace its entry "kv cache".
  void AddTo(std::map<std::string, uint64_t>& ledger, const ExtentPlan& plan,
             const StreamingOptions& options) const;
  // Opens the files again for asynchronous reads.
  std::unique_ptr<StreamedMatrices> Open(Budget& budget, const ExtentPlan& plan,
                                         const StreamingOptions& options) const;

 private:
  uint64_t OverheadBytes(const StreamingOptions& options) const;

  ExtentMap map_;
  std::vector<std::string> paths_;  // of the file's parts
};

}  // namespace hearth
