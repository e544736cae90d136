// quantization_config of a config.json: how a folder's matrices were quantized. Internal to
// import/.
#pragma once

#include <cstdint>
#include <string>

#include "import/hugging_face_json.h"

namespace hearth {

enum class QuantMethod : uint8_t { kNone, kGptq, kAwq, kFp8, kCompressedTensors };

struct PublishedQuantization {
  QuantMethod method = QuantMethod::kNone;
  std::string name;           // of the method, as the config has it
  int bits = 0;               // of GPTQ's and AWQ's codes
  uint64_t group_size = 0;    // inputs that share a scale, for GPTQ and AWQ; 0: all of them
  bool is_symmetric = false;  // GPTQ: all zeros are the middle code
  int zeros_less = 0;         // what GPTQ's stored zeros are less than the zeros
  // Rows and columns that share a scale of 8-bit floats; 0: what the scales' shape says.
  uint64_t block_rows = 0;
  uint64_t block_cols = 0;
};

// Reads config.json's quantization_config; method kNone where there is none. Throws
// Error(kUnsupported), with what to do instead, for methods and variants that are not read, and
// Error(kCorrupt) for numbers that cannot be.
PublishedQuantization ReadPublishedQuantization(const PublishedJson& config);

}  // namespace hearth
