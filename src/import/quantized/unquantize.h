// The quantized matrices of a folder as tensors of types that GGUF has. Internal to import/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "import/hugging_face_weights.h"
#include "import/quantized/quantization_config.h"

namespace hearth {

// What became of them, a sentence each, for a user.
using UnquantizedNotices = std::vector<std::string>;

struct FolderTensors {
  std::string folder;
  std::vector<std::unique_ptr<BlockReader>>* sources;
  std::map<std::string, PublishedTensor>* by_name;
};

// Replaces the tensors of each quantized matrix (q_proj.qweight, q_proj.scales, ...) by one,
// q_proj.weight, of the type that coded_reader.h says. Reads the orders of groups, no weights.
// Throws Error: kNotFound for a part that is missing, kCorrupt for shapes that contradict each
// other, kUnsupported for what is not understood.
UnquantizedNotices Unquantize(const FolderTensors& tensors,
                              const PublishedQuantization& quantization);

}  // namespace hearth
