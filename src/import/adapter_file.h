// Low-rank adapters as published, opened as the GGUF adapter that they would be: a GGUF file
// (general.type "adapter", tensors NAME.lora_a and NAME.lora_b), or what PEFT writes (a folder, or
// its adapter_model.safetensors, with adapter_config.json beside it).
//
// PEFT's r, lora_alpha, use_rslora, rank_pattern and alpha_pattern are read; any other setting that
// changes results (DoRA, biases, modules that are saved whole, embeddings) is refused by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth {

// What the names of an adapter's tensors end in, after the name of the base's matrix.
inline constexpr std::string_view kLoraA = ".lora_a", kLoraB = ".lora_b";

struct AdapterFile {
  // Two tensors for each matrix "NAME" of the base: NAME.lora_a, ne {inputs, rank}, and
  // NAME.lora_b, ne {rank, outputs}, whose rows have the order of the base's matrix. Only the
  // architecture and the names of modules were compared with the base; shapes were not.
  GgufFile file;
  std::map<std::string, double, std::less<>> scales;  // by NAME: the factor of (x A^T) B
};

// True for a folder with an adapter_config.json.
bool IsAdapterFolder(const std::string& path);

// Opens the adapter of a model that `base` describes. Every file is treated as hostile. Throws
// Error: kNotFound, kCorrupt, kUnsupported, kIo; each names the file and the setting or tensor.
AdapterFile OpenAdapter(const std::string& path, const ModelSpec& base);

struct RowRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Calls fn(row, numbers) for rows of a tensor of `file`, counted from the range's first. The range
// must be in the tensor, whose type must be a float or quantized one. Throws Error(kCorrupt) for
// numbers that are not finite, Error(kIo).
void ReadAdapterRows(const GgufFile& file, const GgufTensor& tensor, RowRange rows,
                     const std::function<void(uint64_t row, std::span<const float>)>& fn);

}  // namespace hearth
