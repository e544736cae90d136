// A tensor of doubles read as floats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/block_reader.h"

namespace hearth {

// Reads `bytes` bytes at `begin` of `source` (doubles; both multiples of 8 inside it) as half as
// many bytes of floats, each rounded to the nearest. `source` must outlive the reader. Reading
// throws Error(kUnsupported), naming `name`, for a finite number beyond the range of floats.
std::unique_ptr<BlockReader> MakeNarrowingReader(const BlockReader& source, uint64_t begin,
                                                 uint64_t bytes, std::string name);

}  // namespace hearth
