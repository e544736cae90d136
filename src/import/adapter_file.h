// Low-rank adapters as published, opened as the GGUF adapter that they would be: a GGUF file
// (general.type "adapter", tensors NAME.lora_a and NAME.lora_b), or what PEFT writes (a folder, or
// its adapter_model.safetensors, with adapter_config.json beside it).
//
// Read of PEFT's settings: r, lora_alpha, use_rslora, rank_pattern, alpha_pattern. Whatever else
// changes results (DoRA, biases, modules that are saved whole, embeddings) is refused by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth {

struct AdapterFile {
  // Two tensors for each matrix "NAME" of the base: NAME.lora_a, ne {inputs, rank}, and
  // NAME.lora_b, ne {rank, outputs}. Rows of lora_b lie as those of the base's matrix do. Shapes
  // are as the file has them: nothing was held against the base but its architecture and module
  // names.
  GgufFile file;
  std::map<std::string, double, std::less<>> scales;  // of each NAME: what (x A^T) B is scaled by
};

// True for a folder with an adapter_config.json.
bool IsAdapterFolder(const std::string& path);

// Every file is treated as hostile. Throws Error: kNotFound, kCorrupt, kUnsupported, kIo; each
// names the file and the setting or tensor. base: of the model that the adapter is for.
AdapterFile OpenAdapter(const std::string& path, const ModelSpec& base);

struct RowRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Calls fn(row, numbers) for rows of a tensor of `file`, counted from the range's first, which must
// be in it. Throws Error(kCorrupt) for numbers that are not finite, Error(kIo).
void ReadAdapterRows(const GgufFile& file, const GgufTensor& tensor, RowRange rows,
                     const std::function<void(uint64_t row, std::span<const float>)>& fn);

}  // namespace hearth
