// `hearth profile --imatrix`: runs a model over a text and adds up the squares of what its matrices
// multiply.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "model/model_spec.h"
#include "prepare/quantize/importance.h"

namespace hearth {

struct CollectOptions {
  const std::atomic<bool>* cancel = nullptr;                    // asked between batches
  std::function<void(uint64_t done, uint64_t total)> progress;  // tokens
};

struct CollectedImportance {
  std::vector<InputSums> sums;
  uint64_t tokens = 0;
  uint64_t windows = 0;
};

// What CollectImportance charges, as "importance matrix".
uint64_t ImportanceBytes(const ModelSpec& spec);

// Runs `text` (without BOS) in windows of the engine's context, all neurons of every FFN. Throws
// Error(kUnsupported) for a packed model, Error(kCancelled) where it was asked to stop,
// Error(kCorrupt) where activations are no numbers, and what passes throw.
CollectedImportance CollectImportance(Engine& engine, std::span<const TokenId> text,
                                      const CollectOptions& options);

}  // namespace hearth
