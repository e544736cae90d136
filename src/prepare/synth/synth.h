// `hearth synth`: a GGUF model file of any shape with random weights, for measuring what real
// weights cannot be had for. Models whose activation leaves zeros get neurons that fire as those of
// real models do (docs/synth.md). Written as a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "prepare/shapes/shapes.h"
#include "prepare/synth/planted_options.h"
#include "tensor/dtype.h"

namespace hearth {

struct SynthOptions {
  DType quant = DType::kQ4_0;  // of all matrices: F32, F16, BF16, Q4_0, Q4_1 or Q8_0
  uint64_t seed = 0;
  int threads = 1;  // each holds one buffer of 1 MiB
  // For shapes whose activation leaves zeros; the defaults unless given. Planting takes about
  // 20 MiB more per thread, and 12 bytes per neuron.
  std::optional<PlantedOptions> planted;
  // Writes a packed file (docs/formats/bundle.md) without a plain one before it: neurons sorted by
  // their planted rates, and predictors planted with them. Of types that bundles store.
  bool packed = false;
};

struct SynthResult {
  uint64_t file_bytes = 0;
  uint64_t num_tensors = 0;
};

// Called on the calling thread, now and then and at the end. May throw, to cancel.
using SynthProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Writes `path`, replacing a file that is there once all is written. The bytes depend on shape,
// type, seed and sparsity, not on the number of threads.
// Throws Error and leaves nothing behind: kInvalidArgument or kUnsupported for a shape, type or
// sparsity that cannot be made, kIo where `path` cannot be written or its disk has too little space
// (which is looked at first).
SynthResult SynthesizeModel(const ModelShape& shape, const SynthOptions& options,
                            const std::string& path, const SynthProgressFn& progress = {});

// Writes the header of a plain file of that shape and type and a hole as large as its weights,
// which takes no room on the disk: enough to ask what running it would take. Returns the file's
// size. Throws as SynthesizeModel.
uint64_t WriteShapeFile(const ModelShape& shape, DType quant, const std::string& path);

}  // namespace hearth
