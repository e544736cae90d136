// Safetensors files, as models are published on Hugging Face: eight bytes with the length of a JSON
// header, the header, tensor bytes.
//
// Follows the format's public description. Every file is treated as hostile: sizes are checked
// before they are multiplied, offsets before they are read, and each refusal is one sentence that
// names file, tensor, expected and found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "storage/block_reader.h"
#include "tensor/dtype.h"

namespace hearth {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;    // plain types only; I8 for 8-bit floats
  bool is_float8 = false;       // E4M3 without infinities (F8_E4M3)
  std::vector<uint64_t> shape;  // the last entry is contiguous; empty for one number
  uint64_t offset = 0;          // from the start of the file
  uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // by name
};

// Reads and checks the header. Throws Error(kCorrupt), or Error(kUnsupported) for types that
// nothing here knows. Every tensor returned lies inside the file.
SafetensorsHeader ReadSafetensorsHeader(const BlockReader& file);

}  // namespace hearth
