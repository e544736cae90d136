// A GGUF file that lies nowhere: a header made on the spot, and tensors whose bytes are regions of
// other files. So models in other formats are read by whatever reads GGUF.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "storage/region.h"

namespace hearth {

struct GgufViewTensor {
  GgufTensorDecl decl;
  // Parts of the sources. The tensor is their runs, one after another in the order of the loops.
  std::vector<Region> regions;
};

// Throws Error(kInvalidArgument) for what GgufWriter would refuse, and for regions that are not as
// long as their tensor. `name` is the file's path in messages.
GgufFile MakeGgufView(const std::string& name, const GgufMetadata& metadata,
                      const std::vector<GgufViewTensor>& tensors,
                      std::vector<std::unique_ptr<BlockReader>> sources);

}  // namespace hearth
