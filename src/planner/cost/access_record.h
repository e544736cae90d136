// Which neurons a model asks for, token by token, in the mode in which it is to run, or which
// experts where it is a mixture that is not packed: what P_miss(m) and the shares of computed
// neurons in the cost model come from (P2 §5.2, the model's rows of Table 2).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "measure/work_estimate.h"
#include "sparsity/access_sequence.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct AccessRecord {
  // In `predicted` what the predictors list; in `gated` what fires, for gates are in memory; in
  // `dense` the experts of a mixture.
  AccessSequence lists;
  // Where an engine can look ahead (engine/load/neuron_streaming.h), what it would expect each of
  // these lists to be one layer before; of the first layers, which nothing comes before, neuron 0.
  std::optional<AccessSequence> guesses;
  int64_t tokens = 0;
  std::string tokens_hash;  // HashOfRecorded of them; empty in records of before it was kept
  // Of single neurons, rows that are multiplied per token, all layers together. No predictors are
  // named.
  FfnActivity activity;
};

// XXH3-64 of what was computed, in hexadecimal.
std::string HashOfRecorded(std::span<const TokenId> tokens);

// Runs `tokens` as a prompt in which every token computes what it would compute alone, and writes
// the record to `<stem>.trace` (of experts `<stem>.route.csv`), `<stem>.ahead.trace` where there
// are guesses, and `<stem>.json`. The engine is of a packed model and not dense, or of a mixture
// that is not packed. Throws Error(kInvalidArgument)
// for other engines and for more tokens than its context; Error(kIo).
void RecordAccesses(Engine& engine, uint64_t model_hash, std::span<const TokenId> tokens,
                    const std::string& stem,
                    const std::function<void(uint64_t done, uint64_t total)>& progress);

// The record at `stem`, of this model and mode; nothing where there is none, or one of a time
// when guesses were not recorded. Throws
// Error(kCorrupt) for files that are no record, Error(kInvalidArgument) for another model's.
std::optional<AccessRecord> ReadAccessRecord(const std::string& stem, uint64_t model_hash,
                                             FfnMode mode);

}  // namespace hearth
