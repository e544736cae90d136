// Writes a model as a plain GGUF file whose matrices are quantized as a recipe says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/worker_team.h"
#include "format/gguf.h"
#include "prepare/quantize/importance.h"
#include "prepare/quantize/recipe.h"

namespace hearth {

struct QuantizeOptions {
  QuantizeRules rules;
  const ImportanceMatrix* importance = nullptr;  // null: all weights count the same
  bool requantize = false;                       // take matrices that are quantized already
};

// Tensors of one type.
struct TypeTotal {
  uint64_t tensors = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;
};
using TypeTotals = std::map<DType, TypeTotal>;

struct QuantizeResult {
  uint64_t file_bytes = 0;
  uint64_t source_bytes = 0;   // of the tensors that were read
  uint64_t written_bytes = 0;  // of the tensors that were written
  uint64_t weights = 0;
  TypeTotals before, after;
  // Matrices by the type that their rows are too short for, and the one they have instead.
  std::map<std::pair<DType, DType>, uint64_t> fallbacks;
  uint64_t requantized = 0;         // matrices that were quantized before
  uint64_t without_importance = 0;  // quantized matrices of which an importance matrix says nothing
};

// done and total bytes of the tensors that are read.
using QuantizeProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// Writes `source` to `path`, some megabytes at a time, on all threads of `team`. The name appears
// when the file is complete; where `progress` throws, nothing is left behind. Buffers are charged
// to `budget` as "quantizing". Tensors that keep their type keep their bytes. Results do not depend
// on the number of threads.
//
// Throws what PlanTypes and ImportanceMatrix::Find throw, Error(kInvalidArgument) for quantized
// matrices without `requantize`, Error(kCorrupt), naming the tensor, for weights that are no
// numbers, Error(kUnsupported) for a packed file and for numbers beyond the range of F16,
// Error(kIo) where the file cannot be written.
QuantizeResult QuantizeModel(const GgufFile& source, const QuantizeOptions& options,
                             const std::string& path, WorkerTeam& team, Budget& budget,
                             const QuantizeProgressFn& progress);

}  // namespace hearth
