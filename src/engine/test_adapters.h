// Low-rank adapters of golden models, and the same merged into the weights, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "format/test_tensors.h"

namespace hearth {

// What an adapter adds to one matrix.
struct TestPair {
  std::string name;  // of the matrix
  uint64_t cols = 0;
  uint64_t rows = 0;
  uint64_t rank = 0;
  std::vector<float> a;  // [rank][cols]
  std::vector<float> b;  // [rows][rank]
};

inline TestPair MakeTestPair(const GgufTensor& matrix, uint64_t rank, uint32_t seed) {
  std::mt19937 random(seed);
  TestPair pair{matrix.name, matrix.ne[0], matrix.ne[1], rank, {}, {}};
  const auto draw = [&](uint64_t count, uint64_t fan_in, std::vector<float>& out) {
    const float width = 0.4f / std::sqrt(static_cast<float>(fan_in));
    std::uniform_real_distribution<float> number(-width, width);
    for (uint64_t i = 0; i < count; ++i) out.push_back(number(random));
  };
  draw(rank * pair.cols, pair.cols, pair.a);
  draw(rank * pair.rows, rank, pair.b);
  return pair;
}

// The matrices of a model that adapters can change.
inline std::vector<GgufTensor> AdaptableTensors(const GgufFile& file) {
  std::vector<GgufTensor> out;
  for (const GgufTensor& tensor : file.tensors()) {
    for (const char* name :
         {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
          "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"}) {
      if (tensor.name.ends_with("." + std::string(name) + ".weight")) out.push_back(tensor);
    }
  }
  return out;
}

inline void WriteGguf(const std::string& path, const GgufMetadata& metadata,
                      const std::vector<GgufTensorDecl>& decls,
                      const std::vector<std::vector<float>>& values) {
  GgufWriter writer(path, metadata, decls);
  for (const std::vector<float>& tensor : values) writer.Append(std::as_bytes(std::span(tensor)));
  writer.Finish();
}

inline GgufMetadata AdapterMetadata(const std::string& architecture, float alpha) {
  GgufMetadata metadata;
  metadata.SetString("general.architecture", architecture);
  metadata.SetString("general.type", "adapter");
  metadata.SetString("adapter.type", "lora");
  metadata.SetFloat32("adapter.lora.alpha", alpha);
  return metadata;
}

inline void WriteTestAdapter(const std::string& path, const GgufMetadata& metadata,
                             const std::vector<TestPair>& pairs) {
  std::vector<GgufTensorDecl> decls;
  std::vector<std::vector<float>> values;
  for (const TestPair& pair : pairs) {
    decls.push_back({pair.name + ".lora_a", DType::kF32, {pair.cols, pair.rank}});
    decls.push_back({pair.name + ".lora_b", DType::kF32, {pair.rank, pair.rows}});
    values.push_back(pair.a);
    values.push_back(pair.b);
  }
  WriteGguf(path, metadata, decls, values);
}

// Adds scale * B A to the F32 matrices of a model, computed in double precision.
inline void WriteMerged(const GgufFile& base, const std::string& path,
                        const std::vector<TestPair>& pairs, double scale) {
  std::vector<GgufTensorDecl> decls;
  std::vector<std::vector<float>> values;
  for (const GgufTensor& tensor : base.tensors()) {
    decls.push_back(
        {tensor.name, tensor.dtype, {tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims}});
    values.push_back(ReadValues<float>(base, tensor.name));
    for (const TestPair& pair : pairs) {
      if (pair.name != tensor.name) continue;
      for (uint64_t r = 0; r < pair.rows; ++r) {
        for (uint64_t c = 0; c < pair.cols; ++c) {
          double sum = 0;
          for (uint64_t i = 0; i < pair.rank; ++i) {
            sum += double{pair.b[r * pair.rank + i]} * double{pair.a[i * pair.cols + c]};
          }
          float& weight = values.back()[r * pair.cols + c];
          weight = static_cast<float>(double{weight} + scale * sum);
        }
      }
    }
  }
  WriteGguf(path, base.metadata(), decls, values);
}

}  // namespace hearth
