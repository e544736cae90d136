// A model folder as published on Hugging Face (config.json, tokenizer.json, *.safetensors), opened
// as the GGUF file that it would be: weights are read where they lie.
//
// Understood: the families of prepare/archs, which are all that run here, with weights in F64, F32,
// F16 or BF16 under transformers' names (with another prefix or none as well); rope_type default,
// linear, yarn, llama3 and, for Phi, longrope; BPE tokenizers (SentencePiece-like with byte
// fallback, or byte-level with a pre-tokenizer that is built in); the pooling of
// sentence-transformers. Everything else is refused in one sentence that names it.
#pragma once

#include <string>

#include "format/gguf.h"

namespace hearth {

// True for a folder with a config.json.
bool IsModelFolder(const std::string& path);

// Whether the folder's model reads images too. OpenModelFolder takes the part that reads text.
// Throws as it does.
bool HasImagePart(const std::string& folder);

// Every file of the folder is treated as hostile. Throws Error: kNotFound for a file or tensor that
// is missing, kCorrupt, kUnsupported, kIo.
GgufFile OpenModelFolder(const std::string& folder);

}  // namespace hearth
