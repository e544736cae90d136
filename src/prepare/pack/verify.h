// Whether a packed file is still what was written, byte for byte.
#pragma once

#include <cstdint>
#include <functional>

#include "format/gguf.h"

namespace hearth {

struct VerifyResult {
  uint64_t tensors = 0;  // but bundles, each against its hash
  uint64_t bundles = 0;  // each against its checks
  uint64_t bytes = 0;    // of the file
};

// Called on the calling thread with bytes read and in all. May throw, to stop.
using VerifyProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Reads all of a file that IsPacked. Throws Error(kCorrupt) about the first place in it that was
// altered: the header, a tensor, a bundle by layer, expert and neuron (its place in the layer), or
// bytes that mean nothing but must be zero. Every byte of the file is covered. Also what
// CheckPackedFile and ReadModelSpec throw.
VerifyResult VerifyPackedFile(const GgufFile& file, int threads,
                              const VerifyProgressFn& progress = {});

}  // namespace hearth
