#include "prepare/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/test_data.h"
#include "format/gguf_view.h"
#include "prepare/pack_test_models.h"
#include "text/tokenizer.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Module {
  const char* gguf;
  const char* published;
};
constexpr Module kModules[] = {
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
  Json Config() const {
    const LayerSpec& layer = spec_.layers.front();
    Json config = {{"model_type", model_type_},
                   {"hidden_size", spec_.hidden_size},
                   {"num_hidden_layers", spec_.num_layers},
                   {"num_attention_heads", layer.attention.num_heads},
                   {"num_key_value_heads", layer.attention.num_kv_heads},
                   {"head_dim", layer.attention.head_dim},
                   {"intermediate_size", layer.ffn.intermediate_size},
                   {"max_position_embeddings", spec_.context_length},
                   {"rms_norm_eps", layer.norm_epsilon},
                   {"rope_theta", spec_.rope.base},
                   {"tie_word_embeddings", spec_.tied_embeddings},
                   {"hidden_act", "silu"},
                   {"bos_token_id", 1},
                   {"eos_token_id", Json::array({2, 3})}};
    if (layer.ffn.num_experts > 0) {
      const bool is_mixtral = model_type_ == "mixtral";
      config[is_mixtral ? "num_local_experts" : "num_experts"] = layer.ffn.num_experts;
      config["num_experts_per_tok"] = layer.ffn.num_experts_per_token;
      if (!is_mixtral) config["moe_intermediate_size"] = layer.ffn.intermediate_size;
      if (!is_mixtral) config["norm_topk_prob"] = layer.ffn.normalize_expert_weights;
    }
    return config;
  }

  // Weights in one file, or in two with an index.
  void WriteWeights(const TestFolder& folder, bool in_two) {
    for (const GgufTensor& tensor : file_.tensors()) Publish(tensor);
    if (!in_two) return WriteFile(folder.Path("model.safetensors"), 0, 1);
    Json index;
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
      const bool is_mixtral = model_type_ == "mixtral";
      published_[prefix + (is_mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight")] =
          std::move(out);
      return;
    }
    if (module.ends_with("_exps")) return PublishExperts(prefix, module, std::move(out));
    if (spec_.rope.layout == RopeLayout::kAdjacent && (module == "attn_q" || module == "attn_k")) {
      SplitHeads(&out);
    }
    for (const Module& known : kModules) {
      if (module == known.gguf) {
        published_[prefix + known.published + rest.substr(rest.find('.'))] = std::move(out);
        return;
      }
    }
    FAIL() << tensor.name;
  }

  void PublishExperts(const std::string& prefix, const std::string& module, Published all) {
    const bool is_mixtral = model_type_ == "mixtral";
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
    Json header = {{"__metadata__", {{"format", "pt"}}}};
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
Json SentencePieceJson(const GgufMetadata& metadata) {
  const std::vector<std::string>& texts = *metadata.FindStrings("tokenizer.ggml.tokens");
  const std::vector<float> scores = *metadata.FindFloats("tokenizer.ggml.scores");
  const std::vector<int64_t> types = *metadata.FindInts("tokenizer.ggml.token_type");
  Json vocabulary, added = Json::array();
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
  Json list = Json::array();
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

  void Write(const std::string& name, const Json& json) const {
    std::ofstream(folder_.Path(name)) << json;
  }

  // Publishes a golden model, with changes of its config, and opens the folder.
  GgufFile Publish(const GgufFile& golden, const std::string& model_type, const Json& changes = {},
                   bool in_two = false) {
    Publisher publisher(golden, model_type);
    Json config = publisher.Config();
    if (!changes.is_null()) config.merge_patch(changes);
    Write("config.json", config);
    Write("tokenizer.json", SentencePieceJson(golden.metadata()));
    publisher.WriteWeights(folder_, in_two);
    EXPECT_TRUE(IsModelFolder(folder_.Path("")));
    return OpenModelFolder(folder_.Path(""));
  }

  static GgufFile Golden(const std::string& name) {
    return GgufFile::Open(SourcePath("tests/goldens/" + name + ".gguf"));
  }

  static void ExpectSameTensors(const GgufFile& golden, const GgufFile& opened) {
    EXPECT_EQ(golden.tensors().size(), opened.tensors().size());
    for (const GgufTensor& tensor : golden.tensors()) {
      const GgufTensor* found = opened.FindTensorOrNull(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->dtype, tensor.dtype) << tensor.name;
      EXPECT_EQ(found->ne, tensor.ne) << tensor.name;
      if (tensor.name == "rope_freqs.weight") {
        const auto expected = ReadValues<float>(golden, tensor.name);
        const auto factors = ReadValues<float>(opened, tensor.name);
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(factors[i], expected[i], 1e-6);
      } else {
        EXPECT_EQ(ReadAll(opened, *found), ReadAll(golden, tensor)) << tensor.name;
      }
    }
  }

  static void ExpectSameSpec(const GgufFile& golden, const GgufFile& opened) {
    const ModelSpec a = ReadModelSpec(golden), b = ReadModelSpec(opened);
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(a.context_length, b.context_length);
    EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
    EXPECT_EQ(a.rope.layout, b.rope.layout);
    EXPECT_EQ(a.rope.dims, b.rope.dims);
    EXPECT_EQ(a.rope.base, b.rope.base);
    EXPECT_EQ(a.rope.scaling, b.rope.scaling);
    EXPECT_EQ(a.rope.factor, b.rope.factor);
    EXPECT_EQ(a.rope.original_context, b.rope.original_context);
    EXPECT_NEAR(a.rope.attention_factor, b.rope.attention_factor, 1e-6);
    ASSERT_EQ(a.layers.size(), b.layers.size());
    const LayerSpec &x = a.layers.front(), &y = b.layers.front();
    EXPECT_EQ(x.norm_epsilon, y.norm_epsilon);
    EXPECT_EQ(x.attention.num_heads, y.attention.num_heads);
    EXPECT_EQ(x.attention.num_kv_heads, y.attention.num_kv_heads);
    EXPECT_EQ(x.attention.head_dim, y.attention.head_dim);
    EXPECT_EQ(x.attention.sliding_window, y.attention.sliding_window);
    EXPECT_EQ(x.attention.qkv_bias, y.attention.qkv_bias);
    EXPECT_EQ(x.attention.qk_norm, y.attention.qk_norm);
    EXPECT_EQ(x.ffn.activation, y.ffn.activation);
    EXPECT_EQ(x.ffn.threshold, y.ffn.threshold);
    EXPECT_EQ(x.ffn.intermediate_size, y.ffn.intermediate_size);
    EXPECT_EQ(x.ffn.num_experts, y.ffn.num_experts);
    EXPECT_EQ(x.ffn.num_experts_per_token, y.ffn.num_experts_per_token);
    EXPECT_EQ(x.ffn.normalize_expert_weights, y.ffn.normalize_expert_weights);
  }

  TestFolder folder_{"hearth_model_folder"};
};

TEST_F(ModelFolderTest, EveryFamilyIsItsGolden) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"original_max_position_embeddings", 16},
                       {"low_freq_factor", 0.25},
                       {"high_freq_factor", 2.0}};
  struct Case {
    const char* golden;
    const char* model_type;
    Json changes;
  };
  const Case cases[] = {
      {"llama", "llama", {}},
      {"llama-tied", "llama", {}},
      {"llama-bias", "llama", {{"attention_bias", true}}},
      {"llama-relu", "llama", {{"hidden_act", "relu"}}},
      {"llama-drelu", "bamboo", {}},
      {"llama-rope-llama3", "llama", {{"rope_scaling", llama3}}},
      {"mistral-window", "mistral", {{"sliding_window", 7}}},
      {"mixtral", "mixtral", {{"sliding_window", nullptr}}},
      {"qwen2", "qwen2", {{"use_sliding_window", false}, {"sliding_window", 32768}}},
      {"qwen2-tied", "qwen2", {}},
      {"qwen3", "qwen3", {}},
      {"qwen3moe", "qwen3_moe", {{"mlp_only_layers", Json::array()}, {"intermediate_size", 99}}},
  };
  bool in_two = false;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.golden);
    const GgufFile golden = Golden(c.golden);
    std::filesystem::remove(folder_.Path("model.safetensors.index.json"));
    const GgufFile opened = Publish(golden, c.model_type, c.changes, in_two);
    in_two = !in_two;
    ExpectSameTensors(golden, opened);
    ExpectSameSpec(golden, opened);
  }
}

TEST_F(ModelFolderTest, FatReluAndStretchedRopeFollowTheConfig) {
  const GgufFile fatrelu = Golden("llama-fatrelu");
  const float threshold = ReadModelSpec(fatrelu).layers.front().ffn.threshold;
  ExpectSameSpec(fatrelu, Publish(fatrelu, "llama",
                                  {{"hidden_act", "fatrelu"}, {"hidden_act_param", threshold}}));
  for (const char* name : {"llama-rope-linear", "llama-rope-yarn", "llama-rope-yarn-attn"}) {
    SCOPED_TRACE(name);
    const GgufFile golden = Golden(name);
    const RopeSpec rope = ReadModelSpec(golden).rope;
    Json scaling = {{"rope_type", rope.scaling == RopeScalingKind::kYarn ? "yarn" : "linear"},
                    {"factor", rope.factor}};
    if (rope.scaling == RopeScalingKind::kYarn) {
      scaling["original_max_position_embeddings"] = rope.original_context;
      scaling["beta_fast"] = rope.yarn_beta_fast;
      scaling["beta_slow"] = rope.yarn_beta_slow;
      scaling["attention_factor"] = rope.attention_factor;
    }
    ExpectSameSpec(golden, Publish(golden, "llama", {{"rope_scaling", scaling}}));
    // As newer versions write it.
    scaling["rope_theta"] = rope.base;
    ExpectSameSpec(
        golden, Publish(golden, "llama", {{"rope_parameters", scaling}, {"rope_theta", nullptr}}));
  }
}

TEST_F(ModelFolderTest, SentencePieceVocabulariesTokenizeAlike) {
  const GgufFile stories = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
  const GgufFile opened = Publish(stories, "bamboo");
  const auto expected = Tokenizer::FromGguf(stories.metadata());
  const auto found = Tokenizer::FromGguf(opened.metadata());
  EXPECT_EQ(found->vocab_size(), expected->vocab_size());
  EXPECT_EQ(found->special().bos, expected->special().bos);
  EXPECT_EQ(found->special().add_bos, expected->special().add_bos);
  const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
  ASSERT_GT(text.size(), 1000u);
  EXPECT_EQ(found->Encode(text), expected->Encode(text));
  EXPECT_EQ(found->Encode("  \xc3\xa9\xf0\x9f\x98\x80 x\n\n"),
            expected->Encode("  \xc3\xa9\xf0\x9f\x98\x80 x\n\n"));
}

TEST_F(ModelFolderTest, ByteLevelVocabulariesTokenizeAlike) {
  HEARTH_NEED_SHARED("data/vocab/ggml-vocab-qwen2.gguf");
  const char* const kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  struct Case {
    const char* name;
    std::string pattern;
    bool ignore_merges;
  };
  const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Case cases[] = {
      {"qwen2", kContractions + std::string(R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})") + rest, false},
      {"llama-bpe", kContractions + std::string(R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})") + rest,
       true}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const GgufFile file = GgufFile::Open(SharedPath("data/vocab/ggml-vocab-") + c.name + ".gguf");
    const GgufMetadata& metadata = file.metadata();
    const std::vector<std::string>& texts = *metadata.FindStrings("tokenizer.ggml.tokens");
    const std::vector<int64_t> types = *metadata.FindInts("tokenizer.ggml.token_type");
    Json vocabulary, added = Json::array(), merges = Json::array();
    for (size_t i = 0; i < texts.size(); ++i) {
      if (types[i] == 1) vocabulary[texts[i]] = i;
      if (types[i] == 3) added.push_back({{"id", i}, {"content", texts[i]}, {"special", true}});
    }
    for (const std::string& merge : *metadata.FindStrings("tokenizer.ggml.merges")) {
      const size_t space = merge.find(' ', 1);
      merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    const GgufFile golden = Golden("qwen2");
    Publisher publisher(golden, "qwen2");
    Write("config.json", publisher.Config());
    Write("tokenizer.json",
          {{"model",
            {{"type", "BPE"},
             {"vocab", vocabulary},
             {"merges", merges},
             {"ignore_merges", c.ignore_merges}}},
           {"added_tokens", added},
           {"pre_tokenizer",
            {{"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"}, {"pattern", {{"Regex", c.pattern}}}},
               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}}});
    publisher.WriteWeights(folder_, false);
    const GgufFile opened = OpenModelFolder(folder_.Path(""));
    EXPECT_EQ(opened.metadata().GetString("tokenizer.ggml.pre"), c.name);
    const auto expected = Tokenizer::FromGguf(metadata);
    const auto found = Tokenizer::FromGguf(opened.metadata());
    const std::string text =
        ReadWholeFile(SharedPath("data/vocab/ggml-vocab-qwen2.gguf.inp")) + " 12345 it's\n\n";
    EXPECT_EQ(found->Encode(text), expected->Encode(text));
  }
}

TEST_F(ModelFolderTest, WhatIsNotUnderstoodIsNamed) {
  const GgufFile golden = Golden("llama");
  const auto message = [&](const Json& changes, const char* type = "llama") {
    try {
      Publish(golden, type, changes);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_THAT(message({}, "gemma2"), HasSubstr("unsupported"));
  EXPECT_THAT(message({}, "gemma2"), HasSubstr("'gemma2'"));
  EXPECT_THAT(message({{"hidden_act", "gelu"}}), HasSubstr("'gelu'"));
  EXPECT_THAT(message({{"rope_scaling", {{"type", "longrope"}}}}), HasSubstr("'longrope'"));
  EXPECT_THAT(message({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
  EXPECT_THAT(message({{"partial_rotary_factor", 0.5}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(message({{"hidden_size", nullptr}}), HasSubstr("'hidden_size' is missing"));
  EXPECT_THAT(message({{"hidden_size", -1}}), HasSubstr("'hidden_size'"));
  EXPECT_THAT(message({{"num_attention_heads", 5}}), HasSubstr("self_attn.q_proj.weight"));
  EXPECT_THAT(message({{"num_hidden_layers", 2}}), HasSubstr("is not part of a 'llama' model"));
  // Found at the first layer that is not there, however many are claimed.
  for (const uint32_t layers : {4u, UINT32_MAX}) {
    EXPECT_THAT(message({{"num_hidden_layers", layers}}),
                HasSubstr("'model.layers.3.input_layernorm.weight' is missing"));
  }
  EXPECT_THAT(message({{"head_dim", UINT32_MAX}}), HasSubstr("head_dim"));
}

TEST_F(ModelFolderTest, BrokenFoldersAreRefused) {
  const GgufFile golden = Golden("llama");
  const auto message_after = [&](const std::function<void()>& change) {
    Publish(golden, "llama");
    change();
    try {
      OpenModelFolder(folder_.Path(""));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto write = [&](const char* name, const std::string& text) {
    return [&, name, text] { std::ofstream(folder_.Path(name)) << text; };
  };
  EXPECT_THAT(message_after(write("config.json", "{")), HasSubstr("config.json"));
  EXPECT_THAT(message_after(write("tokenizer.json", "[]")), HasSubstr("tokenizer.json"));
  EXPECT_THAT(message_after(write("tokenizer.json", R"({"model":{"type":"Unigram"}})")),
              HasSubstr("'Unigram'"));
  EXPECT_THAT(
      message_after(write("tokenizer.json", R"({"model":{"vocab":{"a":99999999},"merges":[]}})")),
      HasSubstr("id of token 'a'"));
  EXPECT_THAT(
      message_after(write("tokenizer.json",
                          R"({"model":{"byte_fallback":true,"vocab":{"a":0},"merges":["b c"]}})")),
      HasSubstr("merges"));
  EXPECT_THAT(message_after(write("tokenizer.json", R"({"model":{"vocab":{"a":0},"merges":[]},)"
                                                    R"("pre_tokenizer":{"type":"Whitespace"}})")),
              HasSubstr("'Whitespace'"));
  EXPECT_THAT(message_after(write("model.safetensors", "short")), HasSubstr("model.safetensors"));
  EXPECT_THAT(message_after([&] { std::filesystem::remove(folder_.Path("model.safetensors")); }),
              HasSubstr("model.safetensors"));
  EXPECT_THAT(message_after(write("model.safetensors.index.json",
                                  R"({"weight_map":{"a":"../model.safetensors"}})")),
              HasSubstr("files of this folder"));
}

// What a folder says can be packed and is then the same model.
TEST_F(ModelFolderTest, FoldersCanBePacked) {
  const GgufFile stories = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
  const GgufFile opened = Publish(stories, "bamboo", {}, true);
  PackModel(stories, {.quant = DType::kQ8_0}, folder_.Path("from_gguf"));
  PackModel(opened, {.quant = DType::kQ8_0, .threads = 2}, folder_.Path("from_folder"));
  const GgufFile a = GgufFile::Open(folder_.Path("from_gguf"));
  const GgufFile b = GgufFile::Open(folder_.Path("from_folder"));
  CheckPackedFile(b);
  for (int64_t l = 0; l < 5; ++l) {
    const std::string name = BundleTensorName(l);
    EXPECT_EQ(ReadAll(a, a.GetTensor(name)), ReadAll(b, b.GetTensor(name)));
  }
}

}  // namespace
}  // namespace hearth
