// Small models, profiles and files for the tests of packing.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "format/packed_file.h"
#include "format/test_tensors.h"
#include "model/registry.h"
#include "prepare/pack/pack.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"

namespace hearth {

inline std::string ShapeText(int64_t hidden, int64_t ffn, const std::string& more) {
  return R"({"hidden_size": )" + std::to_string(hidden) + R"(, "intermediate_size": )" +
         std::to_string(ffn) +
         R"(, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 32,
            "vocab_size": 300, )" +
         more + "}";
}
// Writes a small packed model, as sparse as bamboo-7b, with predictors: 36 MiB of neurons.
inline void SynthesizeSparseModel(const std::string& path) {
  const ModelShape shape = ParseShape(
      R"({"hidden_size": 512, "intermediate_size": 6144, "num_layers": 4, "num_heads": 8,
          "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "drelu"})",
      "sparse");
  SynthesizeModel(shape, {.threads = 2, .planted = PlantedOptions{}, .packed = true}, path);
}

inline const char* const kDenseShape = R"("arch": "llama")";
inline const char* const kExpertShape =
    R"("arch": "qwen3moe", "num_experts": 3, "num_experts_per_token": 2)";

// A plain model with random weights.
inline void MakeModel(const std::string& path, const std::string& shape, DType dtype,
                      uint64_t seed = 1) {
  SynthesizeModel(ParseShape(shape, "tested"), {.quant = dtype, .seed = seed}, path);
}

// The same model with random blocks of other types in FFN matrices ("gate", "up" or "down").
inline void Retype(const std::string& from, const std::string& to, const std::string& role,
                   DType dtype) {
  const GgufFile file = GgufFile::Open(from);
  std::vector<GgufTensorDecl> decls;
  const auto is_changed = [&](const GgufTensor& tensor) {
    return tensor.name.find(".ffn_" + role + ".") != std::string::npos ||
           tensor.name.find(".ffn_" + role + "_exps.") != std::string::npos;
  };
  for (const GgufTensor& tensor : file.tensors()) {
    decls.push_back(
        {tensor.name, is_changed(tensor) ? dtype : tensor.dtype,
         std::vector<uint64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims)});
  }
  GgufWriter writer(to, file.metadata(), decls);
  std::mt19937 random(5);
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(is_changed(tensor) ? writer.BytesLeftInTensor() : tensor.bytes);
    if (is_changed(tensor)) {
      // Without the bit that would make scales of 2 and more, infinity and NaN among them.
      for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xbf);
    } else {
      file.ReadTensor(tensor, 0, bytes);
    }
    writer.Append(bytes);
  }
  writer.Finish();
}

// A made-up profile of a model: powers of small numbers, with ties.
inline ModelProfile MakeProfile(const GgufFile& model, uint32_t seed = 3) {
  const ModelSpec spec = ReadModelSpec(model);
  const FfnSpec& ffn = MainFfn(spec);
  ModelProfile profile;
  profile.model_name = "tested";
  profile.model_hash = ModelHash(model);
  profile.text_tokens = 1000;
  profile.num_layers = spec.num_layers;
  profile.num_experts = ffn.num_experts;
  profile.intermediate_size = ffn.intermediate_size;
  std::mt19937 random(seed);
  const auto neurons = static_cast<size_t>(ffn.intermediate_size);
  for (int64_t i = 0; i < spec.num_layers * std::max<int64_t>(ffn.num_experts, 1); ++i) {
    FfnProfile one{.tokens = 997};
    for (size_t n = 0; n < neurons; ++n) {
      const uint64_t active = uint64_t{1} << random() % 9;
      one.active.push_back(active);
      one.gate_fired.push_back(active + 1);
      one.mass.push_back(0.5);
    }
    profile.ffns.push_back(std::move(one));
  }
  return profile;
}

}  // namespace hearth
