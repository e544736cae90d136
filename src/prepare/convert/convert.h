// Writes a model as a plain GGUF file, in the types that GGUF's readers expect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/load/adapters.h"
#include "format/gguf.h"

namespace hearth {

struct ConvertOptions {
  // F32, F16 or BF16, of all matrices; nothing: the type that each has, quantized ones too.
  // Vectors, and the few small matrices that readers add or route by, are F32 always.
  std::optional<DType> type;
  // Low-rank adapters that become part of the weights.
  std::vector<AdapterOption> adapters;
};

struct ConvertResult {
  uint64_t file_bytes = 0;
  size_t num_tensors = 0;
  DType type = DType::kF32;  // the one that most bytes have
  uint64_t peak_bytes = 0;   // of all buffers at once, by the ledger
  size_t num_merged = 0;     // tensors that adapters change
  // What rounding to the file's types costs these: the root mean square of the difference from
  // weights with adapters, relative to that of these weights. 0 where there are none.
  double merge_error = 0;
};

// done and total bytes of the file.
using ConvertProgressFn = std::function<void(uint64_t done, uint64_t total)>;

// What a plain file made of `source` says of itself. The vocabulary gets a token for every row of
// the embedding.
GgufMetadata ModelMetadata(const GgufFile& source, uint32_t file_type);

// Writes `source` to `path`, a few megabytes at a time. The name appears when the file is complete.
// Where `progress` throws, nothing is left behind. Throws Error(kUnsupported) for integers, for
// adapters of matrices that stay quantized and for numbers beyond the range of the type, Error(kIo)
// where the file cannot be written, and as MergedAdapters.
ConvertResult ConvertModel(const GgufFile& source, const ConvertOptions& options,
                           const std::string& path, const ConvertProgressFn& progress);

}  // namespace hearth
