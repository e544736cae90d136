// A model folder as published on Hugging Face (config.json, tokenizer.json, *.safetensors), opened
// as the GGUF file that it would be: weights are read where they lie.
//
// Understood: the families of import/archs, which are all that run here, with weights in F64, F32,
// F16 or BF16 under transformers' names (with another prefix or none as well), or quantized by
// GPTQ, AWQ, compressed-tensors or as 8-bit floats (import/quantized/); rope_type default, linear,
// yarn, llama3 and, for Phi, longrope; BPE tokenizers (SentencePiece-like with byte fallback, or
// byte-level with a pre-tokenizer that is built in); the pooling of sentence-transformers.
// Everything else is refused in one sentence that names it.
#pragma once

#include <string>
#include <vector>

#include "format/gguf.h"

namespace hearth {

// True for a folder with a config.json.
bool IsModelFolder(const std::string& path);

// What OpenModelFolder leaves out of a folder or changes in it, in words for a user, none or
// several: the part of a model that reads images, predictors of neurons in other programs' layouts,
// and the types that quantized matrices get, with what that costs. Throws as it does.
std::vector<std::string> WhatIsLeftOut(const std::string& folder);

// Every file of the folder is treated as hostile. Throws Error: kNotFound for a file or tensor that
// is missing, kCorrupt, kUnsupported, kIo.
GgufFile OpenModelFolder(const std::string& folder);

}  // namespace hearth
