// Well-formed GGUF files that are no model, and models with parts that the engine cannot run yet:
// each is refused by its name.
#pragma once

#include <span>

#include "format/gguf.h"
#include "model/weights.h"

namespace hearth {

// Throws Error(kUnsupported), saying what the file is, where its metadata says that it is a LoRA
// adapter, an image encoder or an importance matrix, or where it has no tensors.
void RefuseOtherKinds(const GgufFile& file);

// Throws Error(kUnsupported), saying what it is, for a tensor of a variant that is known and cannot
// be run yet: of those that the model does not declare. Returns where there is none; tensors that
// nobody knows are the loader's to refuse.
void RefuseUnsupportedTensors(const GgufFile& file, const ModelSpec& spec,
                              std::span<const WeightDecl> declared);

// Whether a tensor belongs to one of ModelSpec::guessing_layers.
bool IsOfGuessingLayer(const ModelSpec& spec, std::string_view tensor);

}  // namespace hearth
