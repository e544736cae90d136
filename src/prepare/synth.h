// `hearth synth`: a GGUF model file of any shape with random weights, for measuring what real
// weights cannot be had for. Written as a stream; memory use does not depend on the model's size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "prepare/shapes.h"
#include "tensor/dtype.h"

namespace hearth {

struct SynthOptions {
  DType quant = DType::kQ4_0;  // of all matrices: F32, F16, BF16, Q4_0, Q4_1 or Q8_0
  uint64_t seed = 0;
  int threads = 1;  // each holds one buffer of 1 MiB
};

struct SynthResult {
  uint64_t file_bytes = 0;
  uint64_t num_tensors = 0;
  uint64_t num_weights = 0;
};

// Called on the calling thread, now and then and at the end. May throw, to cancel.
using SynthProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Writes `path`, replacing a file that is there once all is written. The bytes depend on shape,
// type and seed, not on the number of threads.
// Throws Error and leaves nothing behind: kInvalidArgument or kUnsupported for a shape or type
// that cannot be made, kIo where `path` cannot be written or its disk has too little space (which
// is looked at first).
SynthResult SynthesizeModel(const ModelShape& shape, const SynthOptions& options,
                            const std::string& path, const SynthProgressFn& progress = {});

}  // namespace hearth
