// Folders whose matrices are quantized, written by their formats' rules, against the same folders
// with floats by the formats' formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test_folder.h"
#include "format/test_tensors.h"
#include "import/hugging_face.h"
#include "kernels/dequantize.h"
#include "tensor/half.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Words whose codes are put bit by bit. Bit 0 of code 0 is the lowest of word 0.
class Words {
 public:
  Words(uint64_t runs, uint64_t codes, int bits)
      : bits_(static_cast<uint64_t>(bits)),
        per_run_((codes * bits_ + 31) / 32),
        words_(runs * per_run_) {}
  void Put(uint64_t run, uint64_t index, int code) {
    for (uint64_t bit = 0; bit < bits_; ++bit) {
      const uint64_t at = index * bits_ + bit;
      words_[run * per_run_ + at / 32] |= (static_cast<uint32_t>(code) >> bit & 1) << (at % 32);
    }
  }
  uint64_t per_run() const { return per_run_; }
  // [runs][words], or [words][runs].
  std::vector<uint32_t> ByRun() const { return words_; }
  std::vector<uint32_t> Transposed() const {
    std::vector<uint32_t> out(words_.size());
    const uint64_t runs = words_.size() / per_run_;
    for (uint64_t r = 0; r < runs; ++r) {
      for (uint64_t w = 0; w < per_run_; ++w) out[w * runs + r] = words_[r * per_run_ + w];
    }
    return out;
  }

 private:
  uint64_t bits_;
  uint64_t per_run_;
  std::vector<uint32_t> words_;
};

// A Llama of one layer: hidden size 64, 2 heads of 32, an FFN of 96.
class QuantizedFolderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kHidden = 64;
  static constexpr uint64_t kFfn = 96;
  static constexpr uint64_t kTokens = 8;

  // Adds the tensors of a quantized matrix, and returns the matrix [rows][cols].
  using Quantize =
      std::function<std::vector<float>(const std::string& module, uint64_t rows, uint64_t cols)>;

  // Both folders: the quantized one in `folder_`, floats in `floats_`.
  void Write(const Json& quantization, const Quantize& quantize) {
    tensors_.clear();
    AddFloats("model.embed_tokens.weight", {kTokens, kHidden});
    AddFloats("lm_head.weight", {kTokens, kHidden});
    AddFloats("model.norm.weight", {kHidden});
    AddFloats("model.layers.0.input_layernorm.weight", {kHidden});
    AddFloats("model.layers.0.post_attention_layernorm.weight", {kHidden});
    std::map<std::string, Tensor> plain = tensors_;
    const std::map<std::string, std::pair<uint64_t, uint64_t>> modules = {
        {"self_attn.q_proj", {kHidden, kHidden}},
        {"self_attn.k_proj", {kHidden / 2, kHidden}},
        {"self_attn.v_proj", {kHidden / 2, kHidden}},
        {"self_attn.o_proj", {kHidden, kHidden}},
        {"mlp.gate_proj", {kFfn, kHidden}},
        {"mlp.up_proj", {kFfn, kHidden}},
        {"mlp.down_proj", {kHidden, kFfn}}};
    for (const auto& [name, shape] : modules) {
      const std::string module = "model.layers.0." + name;
      plain[module + ".weight"] = {
          "F32", {shape.first, shape.second}, BytesOf(quantize(module, shape.first, shape.second))};
    }
    Json config = {{"model_type", "llama"},    {"hidden_size", kHidden},
                   {"num_hidden_layers", 1},   {"num_attention_heads", 2},
                   {"num_key_value_heads", 1}, {"intermediate_size", kFfn},
                   {"vocab_size", kTokens},    {"max_position_embeddings", 32}};
    WriteFolder(floats_, config, plain);
    if (!quantization.is_null()) config["quantization_config"] = quantization;
    WriteFolder(folder_, config, tensors_);
  }

  // Every matrix of a layer has the type and, bit for bit, the floats' values: as they are, or in
  // F16.
  void ExpectExact(DType dtype) {
    const GgufFile found = OpenModelFolder(folder_.Path(""));
    const GgufFile expected = OpenModelFolder(floats_.Path(""));
    int matrices = 0;
    for (const GgufTensor& tensor : found.tensors()) {
      const bool is_matrix = tensor.name.starts_with("blk.") && tensor.num_dims == 2;
      EXPECT_EQ(tensor.dtype, is_matrix ? dtype : DType::kF32) << tensor.name;
      matrices += is_matrix ? 1 : 0;
      const std::vector<float> ours = Values(found, tensor);
      std::vector<float> theirs = Values(expected, expected.GetTensor(tensor.name));
      if (tensor.dtype == DType::kF16) {
        for (float& value : theirs) value = HalfToFloat(FloatToHalf(value));
      }
      EXPECT_EQ(ours, theirs) << tensor.name;
    }
    EXPECT_EQ(matrices, 7);
  }

  std::string Message() {
    try {
      const GgufFile file = OpenModelFolder(folder_.Path(""));
      for (const GgufTensor& tensor : file.tensors()) ReadAll(file, tensor);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "accepted";
  }

  int Code(int bits) { return static_cast<int>(random_() % (1u << bits)); }
  // A scale as a type has it.
  float Scale(const std::string& dtype) {
    const float scale = 0.002f + 0.01f * static_cast<float>(random_() % 1000) / 1000;
    if (dtype == "F16") return HalfToFloat(FloatToHalf(scale));
    return dtype == "BF16" ? Bf16ToFloat(FloatToBf16(scale)) : scale;
  }

  void AddWords(const std::string& name, std::vector<uint64_t> shape,
                const std::vector<uint32_t>& words) {
    tensors_[name] = {"I32", std::move(shape), BytesOf(words)};
  }
  void AddNumbers(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape,
                  const std::vector<float>& numbers) {
    if (dtype == "F32") {
      tensors_[name] = {dtype, std::move(shape), BytesOf(numbers)};
      return;
    }
    std::vector<uint16_t> halves;
    for (const float n : numbers) {
      halves.push_back(dtype == "F16" ? FloatToHalf(n) : FloatToBf16(n));
    }
    tensors_[name] = {dtype, std::move(shape), BytesOf(halves)};
  }

  // GPTQ, with what its config says. `order`: the group of every input.
  struct Gptq {
    int bits = 4;
    uint64_t group = 32;
    bool is_symmetric = true;
    int zeros_less = 1;
    bool has_order = false;
  };
  static Json ConfigOf(const Gptq& gptq) {
    return {{"quant_method", "gptq"},
            {"bits", gptq.bits},
            {"group_size", gptq.group == 0 ? Json(-1) : Json(gptq.group)},
            {"sym", gptq.is_symmetric},
            {"desc_act", gptq.has_order},
            {"checkpoint_format", gptq.zeros_less == 1 ? "gptq" : "gptq_v2"}};
  }
  std::vector<float> AddGptq(const Gptq& gptq, const std::string& module, uint64_t rows,
                             uint64_t cols) {
    const uint64_t group = gptq.group == 0 ? cols : gptq.group, groups = cols / group;
    std::vector<uint32_t> order(cols);
    for (uint64_t c = 0; c < cols; ++c) order[c] = static_cast<uint32_t>(c / group);
    if (gptq.has_order) std::shuffle(order.begin(), order.end(), random_);
    Words codes(rows, cols, gptq.bits), zeros(groups, rows, gptq.bits);
    std::vector<float> scales(groups * rows), out(rows * cols);
    std::vector<int> zero(groups * rows);
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t r = 0; r < rows; ++r) {
        const int stored =
            gptq.is_symmetric ? (1 << (gptq.bits - 1)) - gptq.zeros_less : Code(gptq.bits);
        zeros.Put(g, r, stored);
        zero[g * rows + r] = stored + gptq.zeros_less;
        scales[g * rows + r] = Scale("F16");
      }
    }
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < cols; ++c) {
        const int code = Code(gptq.bits);
        codes.Put(r, c, code);
        const uint64_t at = order[c] * rows + r;
        out[r * cols + c] = scales[at] * static_cast<float>(code - zero[at]);
      }
    }
    AddWords(module + ".qweight", {codes.per_run(), rows}, codes.Transposed());
    AddWords(module + ".qzeros", {groups, zeros.per_run()}, zeros.ByRun());
    AddNumbers(module + ".scales", "F16", {groups, rows}, scales);
    AddWords(module + ".g_idx", {cols}, order);
    return out;
  }
  void WriteGptq(const Gptq& gptq) {
    Write(ConfigOf(gptq), [&](const std::string& module, uint64_t rows, uint64_t cols) {
      return AddGptq(gptq, module, rows, cols);
    });
  }

  std::vector<float> AddAwq(const std::string& module, uint64_t rows, uint64_t cols) {
    constexpr uint64_t kGroup = 32;
    constexpr uint64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // outputs, from the lowest nibble
    const uint64_t groups = cols / kGroup;
    std::vector<uint32_t> codes(cols * rows / 8), zeros(groups * rows / 8);
    std::vector<float> scales(groups * rows), out(rows * cols);
    std::vector<int> zero(groups * rows);
    const auto put = [&](std::vector<uint32_t>& words, uint64_t line, uint64_t row, int code) {
      for (uint64_t nibble = 0; nibble < 8; ++nibble) {
        if (kOrder[nibble] == row % 8) {
          words[line * (rows / 8) + row / 8] |= static_cast<uint32_t>(code) << (4 * nibble);
        }
      }
    };
    for (uint64_t g = 0; g < groups; ++g) {
      for (uint64_t r = 0; r < rows; ++r) {
        zero[g * rows + r] = Code(4);
        put(zeros, g, r, zero[g * rows + r]);
        scales[g * rows + r] = Scale("F16");
      }
    }
    for (uint64_t c = 0; c < cols; ++c) {
      for (uint64_t r = 0; r < rows; ++r) {
        const int code = Code(4);
        put(codes, c, r, code);
        const uint64_t at = c / kGroup * rows + r;
        out[r * cols + c] = scales[at] * static_cast<float>(code - zero[at]);
      }
    }
    AddWords(module + ".qweight", {cols, rows / 8}, codes);
    AddWords(module + ".qzeros", {groups, rows / 8}, zeros);
    AddNumbers(module + ".scales", "F16", {groups, rows}, scales);
    return out;
  }

  // compressed-tensors' packed integers: codes and zeros are stored with half of the codes added.
  std::vector<float> AddCompressed(const std::string& scale_type, bool has_zeros,
                                   const std::string& module, uint64_t rows, uint64_t cols) {
    constexpr uint64_t kGroup = 32;
    const uint64_t groups = cols / kGroup;
    Words codes(rows, cols, 4), zeros(groups, rows, 4);
    std::vector<float> scales(rows * groups), out(rows * cols);
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t g = 0; g < groups; ++g) {
        const int zero = has_zeros ? Code(4) - 8 : 0;
        zeros.Put(g, r, zero + 8);
        scales[r * groups + g] = Scale(scale_type);
        // What a block's half makes of the scale.
        const float kept = HalfToFloat(FloatToHalf(scales[r * groups + g]));
        for (uint64_t c = g * kGroup; c < (g + 1) * kGroup; ++c) {
          const int code = Code(4) - 8;
          codes.Put(r, c, code + 8);
          out[r * cols + c] = kept * static_cast<float>(code - zero);
        }
      }
    }
    AddWords(module + ".weight_packed", {rows, codes.per_run()}, codes.ByRun());
    if (has_zeros) {
      AddWords(module + ".weight_zero_point", {zeros.per_run(), groups}, zeros.Transposed());
    }
    AddNumbers(module + ".weight_scale", scale_type, {rows, groups}, scales);
    tensors_[module + ".weight_shape"] = {"I64", {2}, BytesOf(std::vector<uint64_t>{rows, cols})};
    return out;
  }

  // 8-bit floats with a scale for each block.
  std::vector<float> AddFloat8(uint64_t block_rows, uint64_t block_cols, const std::string& ending,
                               const std::string& module, uint64_t rows, uint64_t cols) {
    const uint64_t down = (rows + block_rows - 1) / block_rows;
    const uint64_t across = (cols + block_cols - 1) / block_cols;
    std::vector<float> scales(down * across), out(rows * cols);
    for (float& scale : scales) scale = Scale("F32");
    std::string bytes;
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < cols; ++c) {
        int bits = Code(8);
        if ((bits & 127) == 127) bits = 0;  // no number
        const int exponent = bits >> 3 & 15;
        const double magnitude = exponent == 0 ? (bits & 7) / 8.0 * std::pow(2, -6)
                                               : (1 + (bits & 7) / 8.0) * std::pow(2, exponent - 7);
        const auto value = static_cast<float>(bits > 127 ? -magnitude : magnitude);
        bytes.push_back(static_cast<char>(bits));
        out[r * cols + c] = scales[r / block_rows * across + c / block_cols] * value;
      }
    }
    tensors_[module + ".weight"] = {"F8_E4M3", {rows, cols}, bytes};
    AddNumbers(module + ending, "F32", {down, across}, scales);
    return out;
  }

  struct Tensor {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string bytes;
  };
  template <typename T>
  static std::string BytesOf(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  std::map<std::string, Tensor> tensors_;
  TestFolder folder_{"hearth_quantized_folder"};

 private:
  void AddFloats(const std::string& name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    std::vector<float> values(count);
    for (float& value : values) value = Scale("F32");
    AddNumbers(name, "F32", std::move(shape), values);
  }

  static void WriteFolder(const TestFolder& folder, const Json& config,
                          const std::map<std::string, Tensor>& tensors) {
    std::ofstream(folder.Path("config.json")) << config;
    Json vocabulary;
    for (size_t i = 0; i < kTokens; ++i) vocabulary["t" + std::to_string(i)] = i;
    std::ofstream(folder.Path("tokenizer.json")) << Json{{"model",
                                                          {{"type", "BPE"},
                                                           {"byte_fallback", true},
                                                           {"vocab", vocabulary},
                                                           {"merges", Json::array()}}}};
    Json header;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    const std::string head = header.dump();
    const uint64_t length = head.size();
    std::ofstream out(folder.Path("model.safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << head << data;
  }

  static std::vector<float> Values(const GgufFile& file, const GgufTensor& tensor) {
    std::vector<float> values(tensor.num_weights());
    kernels::Dequantize(tensor.dtype, ReadAll(file, tensor).data(),
                        static_cast<int64_t>(values.size()), values.data());
    return values;
  }

  std::mt19937 random_{1};
  TestFolder floats_{"hearth_float_folder"};
};

TEST_F(QuantizedFolderTest, GptqIsHeldExactly) {
  WriteGptq({});
  ExpectExact(DType::kQ4_0);
  EXPECT_THAT(WhatIsLeftOut(folder_.Path("")),
              ElementsAre(HasSubstr("7 matrices of gptq are Q4_0 (4.5 bits a weight): weights are "
                                    "exactly as published")));
  WriteGptq({.group = 0});
  ExpectExact(DType::kQ4_0);
  for (const int zeros_less : {0, 1}) {
    WriteGptq({.is_symmetric = false, .zeros_less = zeros_less});
    ExpectExact(DType::kQ5_0);
  }
  WriteGptq({.bits = 2, .is_symmetric = false});
  ExpectExact(DType::kQ4_0);
  WriteGptq({.bits = 3, .is_symmetric = false});
  ExpectExact(DType::kQ4_0);
  WriteGptq({.bits = 8});
  ExpectExact(DType::kQ8_0);
}

TEST_F(QuantizedFolderTest, WhatBlocksCannotHoldBecomesF16) {
  WriteGptq({.has_order = true});
  ExpectExact(DType::kF16);
  EXPECT_THAT(WhatIsLeftOut(folder_.Path("")), ElementsAre(HasSubstr("act-order")));
  WriteGptq({.group = 16});
  ExpectExact(DType::kF16);
  WriteGptq({.bits = 8, .is_symmetric = false});
  ExpectExact(DType::kF16);
}

TEST_F(QuantizedFolderTest, AwqIsHeldExactly) {
  Write({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"version", "gemm"}},
        [&](const std::string& module, uint64_t rows, uint64_t cols) {
          return AddAwq(module, rows, cols);
        });
  ExpectExact(DType::kQ5_0);
}

TEST_F(QuantizedFolderTest, CompressedTensorsAreHeldUpToTheirScales) {
  for (const bool has_zeros : {false, true}) {
    for (const std::string scale : {"F16", "BF16", "F32"}) {
      Write({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}},
            [&](const std::string& module, uint64_t rows, uint64_t cols) {
              return AddCompressed(scale, has_zeros, module, rows, cols);
            });
      ExpectExact(has_zeros ? DType::kQ5_0 : DType::kQ4_0);
      EXPECT_THAT(WhatIsLeftOut(folder_.Path("")),
                  ElementsAre(HasSubstr(scale == "F16" ? "exactly" : "scales become F16")));
    }
  }
}

TEST_F(QuantizedFolderTest, EightBitFloatsBecomeF16) {
  Write({{"quant_method", "fp8"}, {"weight_block_size", {48, 40}}},
        [&](const std::string& module, uint64_t rows, uint64_t cols) {
          return AddFloat8(48, 40, ".weight_scale_inv", module, rows, cols);
        });
  ExpectExact(DType::kF16);
  // Scales of activations have no part in it.
  Write({{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}},
        [&](const std::string& module, uint64_t rows, uint64_t cols) {
          AddNumbers(module + ".input_scale", "F32", {1}, {2});
          return AddFloat8(1, cols, ".weight_scale", module, rows, cols);
        });
  ExpectExact(DType::kF16);
  Write({{"quant_method", "fp8"}}, [&](const std::string& module, uint64_t rows, uint64_t cols) {
    return AddFloat8(rows, cols, ".weight_scale", module, rows, cols);
  });
  ExpectExact(DType::kF16);
}

TEST_F(QuantizedFolderTest, AnOlderConfigOfItsOwnIsRead) {
  const Gptq gptq = {.is_symmetric = false};
  Write(nullptr, [&](const std::string& module, uint64_t rows, uint64_t cols) {
    return AddGptq(gptq, module, rows, cols);
  });
  EXPECT_THAT(Message(), HasSubstr("q_proj.weight' is missing"));
  Json config = ConfigOf(gptq);
  config.erase("quant_method");
  std::ofstream(folder_.Path("quantize_config.json")) << config;
  ExpectExact(DType::kQ5_0);
}

TEST_F(QuantizedFolderTest, WhatIsNotUnderstoodIsRefusedByName) {
  const auto message = [&](const Json& changes, const std::function<void()>& change = {}) {
    Json config = ConfigOf({});
    if (!changes.is_null()) config.merge_patch(changes);
    Write(config, [&](const std::string& module, uint64_t rows, uint64_t cols) {
      auto out = AddGptq({}, module, rows, cols);
      if (change && module.ends_with("up_proj")) change();
      return out;
    });
    return Message();
  };
  const std::string up = "model.layers.0.mlp.up_proj";
  EXPECT_EQ(message({}), "accepted");
  EXPECT_THAT(message({{"quant_method", "bitsandbytes"}}),
              HasSubstr("unsupported: " + folder_.Path("config.json")));
  EXPECT_THAT(message({{"quant_method", "bitsandbytes"}}),
              HasSubstr("a GGUF file of the model, or the folder with float weights, can be read, "
                        "found 'bitsandbytes'"));
  EXPECT_THAT(message({{"quant_method", nullptr}}), HasSubstr("quant_method: expected gptq"));
  EXPECT_THAT(message({{"checkpoint_format", "marlin"}}), HasSubstr("found 'marlin'"));
  EXPECT_THAT(message({{"bits", 5}}), HasSubstr("bits: expected 2, 3, 4 or 8"));
  EXPECT_THAT(message({{"group_size", 0}}), HasSubstr("group_size"));
  EXPECT_THAT(message({{"group_size", 64}}), HasSubstr("shape of"));
  EXPECT_THAT(message({}, [&] { tensors_.erase(up + ".qzeros"); }),
              HasSubstr("'" + up + ".qzeros' is missing"));
  EXPECT_THAT(message({}, [&] { tensors_[up + ".g_idx"].bytes[0] = 9; }),
              HasSubstr("groups below 2, found 9"));
  const auto make_infinite = [&] {
    tensors_[up + ".scales"].bytes[0] = 0;
    tensors_[up + ".scales"].bytes[1] = 0x7c;
  };
  EXPECT_THAT(message({}, make_infinite), HasSubstr("numbers within the range of F16, found inf"));
  // A zero that a symmetric matrix cannot have.
  EXPECT_THAT(message({}, [&] { tensors_[up + ".qzeros"].bytes[0] = 0; }),
              HasSubstr(up + ": codes less their zeros: expected -8 to 7"));
  EXPECT_THAT(message({}, [&] { AddNumbers(up + ".weight", "F32", {1}, {1}); }),
              HasSubstr("codes or floats"));
  Write(nullptr, [&](const std::string& module, uint64_t rows, uint64_t cols) {
    return AddFloat8(rows, cols, ".weight_scale", module, rows, cols);
  });
  EXPECT_THAT(Message(), HasSubstr("holds 8-bit floats"));
}

}  // namespace
}  // namespace hearth
