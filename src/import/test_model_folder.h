// Model folders as their authors publish them, made of GGUF models, for tests of reading them.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/test_data.h"
#include "base/test_folder.h"
#include "format/test_tensors.h"
#include "import/hugging_face.h"
#include "model/registry.h"

namespace hearth {

// The names of a module of a layer in GGUF and as published.
struct ModuleNames {
  const char* gguf;
  const char* published;
};
inline constexpr ModuleNames kModuleNames[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

// Takes a GGUF model apart into what its authors would have published. The golden models were made
// with transformers and converted by tools/goldens, so that they are right.
class Publisher {
 public:
  Publisher(const GgufFile& file, std::string model_type)
      : file_(file), model_type_(std::move(model_type)), spec_(ReadModelSpec(file)) {}

  // The config without what a test adds.
  nlohmann::json Config() const {
    const LayerSpec& layer = spec_.layers.front();
    nlohmann::json config = {{"model_type", model_type_},
                             {"hidden_size", spec_.hidden_size},
                             {"num_hidden_layers", spec_.num_layers},
                             {"num_attention_heads", layer.attention.num_heads},
                             {"num_key_value_heads", layer.attention.num_kv_heads},
                             {"head_dim", layer.attention.head_dim},
                             {"intermediate_size", layer.ffn.intermediate_size},
                             {"max_position_embeddings", spec_.context_length},
                             {"rms_norm_eps", layer.norm_epsilon},
                             {"rope_theta", layer.attention.rope->base},
                             {"tie_word_embeddings", spec_.tied_embeddings},
                             {"hidden_act", "silu"},
                             {"bos_token_id", 1},
                             {"eos_token_id", nlohmann::json::array({2, 3})}};
    if (layer.ffn.num_experts > 0) {
      const bool is_mixtral = model_type_.ends_with("mixtral");
      config[is_mixtral ? "num_local_experts" : "num_experts"] = layer.ffn.num_experts;
      config["num_experts_per_tok"] = layer.ffn.num_experts_per_token;
      if (!is_mixtral) config["moe_intermediate_size"] = layer.ffn.intermediate_size;
      if (!is_mixtral) config["norm_topk_prob"] = layer.ffn.normalize_expert_weights;
    }
    return config;
  }

  // Weights in one file, or in two with an index; under other names where `rename` is given, floats
  // as doubles where asked for.
  void WriteWeights(const TestFolder& folder, bool in_two,
                    const std::function<std::string(std::string)>& rename = {},
                    bool as_doubles = false) {
    published_.clear();
    for (const GgufTensor& tensor : file_.tensors()) Publish(tensor);
    if (rename) {
      std::map<std::string, Published> renamed;
      for (auto& [name, tensor] : published_) renamed[rename(name)] = std::move(tensor);
      published_ = std::move(renamed);
    }
    if (as_doubles) {
      for (auto& [name, tensor] : published_) Widen(&tensor);
    }
    if (!in_two) return WriteFile(folder.Path("model.safetensors"), 0, 1);
    std::filesystem::remove(folder.Path("model.safetensors"));  // which would come first
    nlohmann::json index;
    size_t i = 0;
    for (const auto& [name, tensor] : published_) {
      index["weight_map"][name] = "part-" + std::to_string(i++ % 2) + ".safetensors";
    }
    std::ofstream(folder.Path("model.safetensors.index.json")) << index;
    WriteFile(folder.Path("part-0.safetensors"), 0, 2);
    WriteFile(folder.Path("part-1.safetensors"), 1, 2);
  }

 private:
  struct Published {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::vector<std::byte> bytes;
  };

  void Publish(const GgufTensor& tensor) {
    Published out{NameOf(tensor.dtype), {}, ReadAll(file_, tensor)};
    for (int d = tensor.num_dims - 1; d >= 0; --d) {
      out.shape.push_back(tensor.ne[static_cast<size_t>(d)]);
    }
    const std::map<std::string, std::string> tops = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"}};
    if (tensor.name == "rope_freqs.weight") return;  // follows from the config
    if (const auto top = tops.find(tensor.name); top != tops.end()) {
      published_[top->second] = std::move(out);
      return;
    }
    const size_t dot = tensor.name.find('.', 4);
    const std::string prefix = "model.layers." + tensor.name.substr(4, dot - 4) + ".";
    const std::string rest = tensor.name.substr(dot + 1);
    const std::string module = rest.substr(0, rest.find('.'));
    if (module == "ffn_gate_inp") {
      const bool is_mixtral = model_type_.ends_with("mixtral");
      published_[prefix + (is_mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight")] =
          std::move(out);
      return;
    }
    if (module.ends_with("_exps")) return PublishExperts(prefix, module, std::move(out));
    if (spec_.layers[0].attention.rope->layout == RopeLayout::kAdjacent &&
        (module == "attn_q" || module == "attn_k")) {
      SplitHeads(&out);
    }
    for (const ModuleNames& known : kModuleNames) {
      if (module == known.gguf) {
        published_[prefix + known.published + rest.substr(rest.find('.'))] = std::move(out);
        return;
      }
    }
    FAIL() << tensor.name;
  }

  void PublishExperts(const std::string& prefix, const std::string& module, Published all) {
    const bool is_mixtral = model_type_.ends_with("mixtral");
    const std::map<std::string, std::string> parts = {
        {"ffn_gate_exps", is_mixtral ? "w1" : "gate_proj"},
        {"ffn_up_exps", is_mixtral ? "w3" : "up_proj"},
        {"ffn_down_exps", is_mixtral ? "w2" : "down_proj"}};
    const uint64_t experts = all.shape.front();
    const auto bytes = static_cast<int64_t>(all.bytes.size() / experts);
    for (uint64_t e = 0; e < experts; ++e) {
      const auto begin = all.bytes.begin() + static_cast<int64_t>(e) * bytes;
      published_[prefix + (is_mixtral ? "block_sparse_moe.experts." : "mlp.experts.") +
                 std::to_string(e) + "." + parts.at(module) + ".weight"] = {
          all.dtype, {all.shape[1], all.shape[2]}, {begin, begin + bytes}};
    }
  }

  static void Widen(Published* tensor) {
    ASSERT_EQ(tensor->dtype, "F32");
    std::vector<std::byte> doubles(2 * tensor->bytes.size());
    for (size_t i = 0; i < tensor->bytes.size() / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, tensor->bytes.data() + i * sizeof(float), sizeof(float));
      const auto wide = static_cast<double>(value);
      std::memcpy(doubles.data() + i * sizeof(double), &wide, sizeof(double));
    }
    tensor->dtype = "F64";
    tensor->bytes = std::move(doubles);
  }

  // Neighbouring rows of a head go half a head apart.
  void SplitHeads(Published* tensor) const {
    const auto head = static_cast<size_t>(spec_.layers.front().attention.head_dim);
    const size_t rows = tensor->shape.front();
    const size_t row_bytes = tensor->bytes.size() / rows;
    std::vector<std::byte> out(tensor->bytes.size());
    for (size_t r = 0; r < rows; ++r) {
      const size_t in_head = r % head;
      const size_t to = r - in_head + (in_head % 2 == 0 ? in_head / 2 : head / 2 + in_head / 2);
      std::memcpy(out.data() + to * row_bytes, tensor->bytes.data() + r * row_bytes, row_bytes);
    }
    tensor->bytes = std::move(out);
  }

  // Every `step`th tensor from `first` on.
  void WriteFile(const std::string& path, size_t first, size_t step) const {
    nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
    std::vector<std::byte> data;
    size_t i = 0;
    for (const auto& [name, tensor] : published_) {
      if (i++ % step != first) continue;
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    }
    const std::string json = header.dump();
    const uint64_t length = json.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << json;
    out.write(reinterpret_cast<const char*>(data.data()), static_cast<int64_t>(data.size()));
  }

  const GgufFile& file_;
  std::string model_type_;
  ModelSpec spec_;
  std::map<std::string, Published> published_;
};

// tokenizer.json of a SentencePiece vocabulary, merges as converters make them: every way to make a
// piece of two, best pieces first.
inline nlohmann::json SentencePieceJson(const GgufMetadata& metadata) {
  const std::vector<std::string>& texts = *metadata.FindStrings("tokenizer.ggml.tokens");
  const std::vector<float> scores = *metadata.FindFloats("tokenizer.ggml.scores");
  const std::vector<int64_t> types = *metadata.FindInts("tokenizer.ggml.token_type");
  nlohmann::json vocabulary, added = nlohmann::json::array();
  std::map<std::string, size_t> normal;
  for (size_t i = 0; i < texts.size(); ++i) {
    vocabulary[texts[i]] = i;
    if (types[i] == 1) normal[texts[i]] = i;
    if (types[i] == 2 || types[i] == 3 || types[i] == 4) {
      added.push_back({{"id", i}, {"content", texts[i]}, {"special", types[i] != 4}});
    }
  }
  std::vector<std::pair<size_t, std::string>> merges;
  for (const auto& [text, id] : normal) {
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (normal.count(text.substr(0, cut)) == 0 || normal.count(text.substr(cut)) == 0) continue;
      merges.push_back({id, text.substr(0, cut) + " " + text.substr(cut)});
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [&](const auto& a, const auto& b) { return scores[a.first] > scores[b.first]; });
  nlohmann::json list = nlohmann::json::array();
  for (const auto& merge : merges) list.push_back(merge.second);
  return {{"model",
           {{"type", "BPE"},
            {"byte_fallback", true},
            {"unk_token", "<unk>"},
            {"vocab", vocabulary},
            {"merges", list}}},
          {"added_tokens", added},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}}}}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}}};
}

class ModelFolderTest : public ::testing::Test {
 protected:
  // Parsed vocabularies are large, and other tests of this program measure what it takes.
  ~ModelFolderTest() override { malloc_trim(0); }

  void Write(const std::string& name, const nlohmann::json& json) const {
    std::ofstream(folder_.Path(name)) << json;
  }

  // Publishes a golden model, with changes of its config, and opens the folder.
  GgufFile Publish(const GgufFile& golden, const std::string& model_type,
                   const nlohmann::json& changes = {}, bool in_two = false) {
    Publisher publisher(golden, model_type);
    nlohmann::json config = publisher.Config();
    if (!changes.is_null()) config.merge_patch(changes);
    Write("config.json", config);
    Write("tokenizer.json", SentencePieceJson(golden.metadata()));
    publisher.WriteWeights(folder_, in_two);
    EXPECT_TRUE(IsModelFolder(folder_.Path("")));
    return OpenModelFolder(folder_.Path(""));
  }

  // The same with other names of tensors.
  GgufFile PublishAs(const GgufFile& golden, const std::string& model_type,
                     const std::function<std::string(std::string)>& rename) {
    Publisher publisher(golden, model_type);
    Write("config.json", publisher.Config());
    Write("tokenizer.json", SentencePieceJson(golden.metadata()));
    publisher.WriteWeights(folder_, false, rename);
    return OpenModelFolder(folder_.Path(""));
  }

  static GgufFile Golden(const std::string& name) {
    return GgufFile::Open(SourcePath("tests/goldens/" + name + ".gguf"));
  }

  TestFolder folder_{"hearth_model_folder"};
};

}  // namespace hearth
