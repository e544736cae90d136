// The one way in which commands and the engine open a model, whatever it lies in.
#pragma once

#include <optional>
#include <string>

#include "format/gguf.h"
#include "model/given_activation.h"

namespace hearth {

// Opens a GGUF file (any file of a split set) or a model folder (import/hugging_face.h), and gives
// it `given` where there is one. Throws as GgufFile::Open, OpenModelFolder and GiveActivation do.
GgufFile OpenModel(const std::string& path, const std::optional<GivenActivation>& given = {},
                   ForeignTensors foreign = ForeignTensors::kRefuse);

}  // namespace hearth
