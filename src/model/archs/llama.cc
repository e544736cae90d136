// Llama and what shares its graph: Mistral (a sliding window), Mixtral (experts), and the ReLU
// models Bamboo (dReLU) and ProSparse (FATReLU), which differ in the FFN's activation.
#include "model/archs/archs.h"
#include "model/common_spec.h"
#include "model/given_activation.h"

namespace hearth::archs {
namespace {

void ReadLlamaWith(const GgufFile& file, FfnActivation activation, float threshold,
                   ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, activation, threshold, spec);
}

}  // namespace

void ReadLlama(const GgufFile& file, ModelSpec* spec) {
  ReadLlamaWith(file, FfnActivation::kSilu, 0, spec);
}

void ReadBamboo(const GgufFile& file, ModelSpec* spec) {
  ReadLlamaWith(file, FfnActivation::kDRelu, 0, spec);
}

void ReadProSparse(const GgufFile& file, ModelSpec* spec) {
  ReadLlamaWith(file, FfnActivation::kFatRelu, kUsualFatReluThreshold, spec);
}

}  // namespace hearth::archs
