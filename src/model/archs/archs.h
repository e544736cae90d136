// The families of archs/*.cc. Each function receives a spec that holds what all families share
// (common_spec.h) and sets what is particular to its own; docs/howto/add-architecture.md.
#pragma once

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth::archs {

void ReadLlama(const GgufFile& file, ModelSpec* spec);  // with Mistral and Mixtral
void ReadMistral3(const GgufFile& file, ModelSpec* spec);
void ReadBamboo(const GgufFile& file, ModelSpec* spec);
void ReadProSparse(const GgufFile& file, ModelSpec* spec);
void ReadQwen2(const GgufFile& file, ModelSpec* spec);
void ReadQwen3(const GgufFile& file, ModelSpec* spec);
void ReadQwen3Moe(const GgufFile& file, ModelSpec* spec);
void ReadQwen2Moe(const GgufFile& file, ModelSpec* spec);
void ReadGemma2(const GgufFile& file, ModelSpec* spec);
void ReadGemma3(const GgufFile& file, ModelSpec* spec);
void ReadPhi3(const GgufFile& file, ModelSpec* spec);
void ReadOlmo2(const GgufFile& file, ModelSpec* spec);
void ReadSmolLm3(const GgufFile& file, ModelSpec* spec);
void ReadGranite(const GgufFile& file, ModelSpec* spec);  // with granitemoe
void ReadGlm4(const GgufFile& file, ModelSpec* spec);
void ReadGlm4Moe(const GgufFile& file, ModelSpec* spec);
void ReadGpt2(const GgufFile& file, ModelSpec* spec);
void ReadOpt(const GgufFile& file, ModelSpec* spec);
void ReadFalcon(const GgufFile& file, ModelSpec* spec);
void ReadGptOss(const GgufFile& file, ModelSpec* spec);
void ReadSeedOss(const GgufFile& file, ModelSpec* spec);
void ReadErnie45(const GgufFile& file, ModelSpec* spec);
void ReadSmallThinker(const GgufFile& file, ModelSpec* spec);

}  // namespace hearth::archs
