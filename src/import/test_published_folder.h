// Published folders of one layer, made tensor by tensor, for tests of single families.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "format/test_tensors.h"
#include "import/hugging_face.h"
#include "model/registry.h"
#include "tensor/half.h"

namespace hearth {

// Hidden size 4, 2 heads of 2, an FFN of 3 and 8 tokens, where a test says nothing else.
class PublishedFolderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kHidden = 4;
  static constexpr uint64_t kFfn = 3;
  static constexpr uint64_t kTokens = 8;

  PublishedFolderTest() {
    nlohmann::json vocabulary;
    for (size_t i = 0; i < kTokens; ++i) vocabulary["t" + std::to_string(i)] = i;
    tokenizer_ = {{"model",
                   {{"type", "BPE"},
                    {"byte_fallback", true},
                    {"vocab", vocabulary},
                    {"merges", nlohmann::json::array()}}}};
  }

  // The keys that most families share.
  static nlohmann::json UsualConfig(const std::string& model_type) {
    return {{"model_type", model_type},  {"hidden_size", kHidden},        {"num_hidden_layers", 1},
            {"num_attention_heads", 2},  {"num_key_value_heads", 1},      {"head_dim", 2},
            {"intermediate_size", kFfn}, {"max_position_embeddings", 32}, {"vocab_size", kTokens}};
  }

  // Values count up from `first` in steps of one.
  void Add(const std::string& name, std::vector<uint64_t> shape, float first = 0) {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    std::vector<float> values(count);
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    tensors_[name] = {std::move(shape), std::move(values)};
  }

  // Adds a tensor of layer 0, by its name there.
  void AddToLayer(const std::string& name, std::vector<uint64_t> shape, float first = 0) {
    Add("model.layers.0." + name, std::move(shape), first);
  }

  // Embeddings, the last norm, and attention as most families name it.
  void AddUsual() {
    Add("model.embed_tokens.weight", {kTokens, kHidden});
    Add("model.norm.weight", {kHidden});
    Add("lm_head.weight", {kTokens, kHidden});
    AddToLayer("input_layernorm.weight", {kHidden});
    AddToLayer("self_attn.q_proj.weight", {4, kHidden});
    AddToLayer("self_attn.k_proj.weight", {2, kHidden});
    AddToLayer("self_attn.v_proj.weight", {2, kHidden});
    AddToLayer("self_attn.o_proj.weight", {kHidden, 4});
    AddToLayer("post_attention_layernorm.weight", {kHidden});
  }
  void AddUsualFfn() {
    AddToLayer("mlp.gate_proj.weight", {kFfn, kHidden});
    AddToLayer("mlp.up_proj.weight", {kFfn, kHidden});
    AddToLayer("mlp.down_proj.weight", {kHidden, kFfn});
  }

  // Writes the folder, floats as `dtype` (F32, F16 or BF16).
  std::string WriteFolder(const nlohmann::json& config, const std::string& dtype = "F32") {
    std::ofstream(folder_.Path("config.json")) << config;
    std::ofstream(folder_.Path("tokenizer.json")) << tokenizer_;
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      const size_t begin = data.size();
      for (const float value : tensor.second) AppendNumber(value, dtype, &data);
      header[name] = {
          {"dtype", dtype}, {"shape", tensor.first}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string json = header.dump();
    const uint64_t length = json.size();
    std::ofstream out(folder_.Path("model.safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << json << data;
    return folder_.Path("");
  }
  GgufFile Open(const nlohmann::json& config, const std::string& dtype = "F32") {
    return OpenModelFolder(WriteFolder(config, dtype));
  }
  // What opening says, "accepted" where it says nothing.
  std::string Message(const nlohmann::json& config) {
    try {
      Open(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  std::map<std::string, std::pair<std::vector<uint64_t>, std::vector<float>>> tensors_;
  nlohmann::json tokenizer_;
  TestFolder folder_{"hearth_published_folder"};

 private:
  static void AppendNumber(float value, const std::string& dtype, std::string* out) {
    const uint16_t half = dtype == "F16" ? FloatToHalf(value) : FloatToBf16(value);
    const bool is_wide = dtype == "F32";
    const auto* bytes =
        is_wide ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&half);
    out->append(bytes, is_wide ? sizeof(value) : sizeof(half));
  }
};

}  // namespace hearth
