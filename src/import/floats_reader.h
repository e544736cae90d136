// Numbers of another type, or less by a constant than they should be, read as floats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/block_reader.h"
#include "tensor/dtype.h"

namespace hearth {

// A run of numbers of a source.
struct NumberRun {
  uint64_t begin = 0;  // bytes from the source's start
  uint64_t count = 0;
  DType dtype = DType::kF64;  // or F32, F16, BF16
  float plus = 0;             // added to each
};

// Reads the run as floats, each rounded to the nearest before `plus` is added. `source` must hold
// the run and outlive the reader. Reading throws Error(kUnsupported), naming `name`, for a finite
// number beyond the range of floats.
std::unique_ptr<BlockReader> MakeFloatsReader(const BlockReader& source, const NumberRun& run,
                                              std::string name);

}  // namespace hearth
