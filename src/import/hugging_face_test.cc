#include "import/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "format/gguf_view.h"
#include "import/test_model_folder.h"
#include "import/test_same_spec.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

void ExpectSameTensors(const GgufFile& golden, const GgufFile& opened) {
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

void ExpectSameModel(const GgufFile& golden, const GgufFile& opened) {
  ExpectSameSpec(ReadModelSpec(golden), ReadModelSpec(opened));
}

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
    ExpectSameModel(golden, opened);
  }
}

TEST_F(ModelFolderTest, FatReluAndStretchedRopeFollowTheConfig) {
  const GgufFile fatrelu = Golden("llama-fatrelu");
  const float threshold = MainFfn(ReadModelSpec(fatrelu)).threshold;
  ExpectSameModel(fatrelu, Publish(fatrelu, "llama",
                                   {{"hidden_act", "fatrelu"}, {"hidden_act_param", threshold}}));
  for (const char* name : {"llama-rope-linear", "llama-rope-yarn", "llama-rope-yarn-attn"}) {
    SCOPED_TRACE(name);
    const GgufFile golden = Golden(name);
    const RopeSpec rope = *ReadModelSpec(golden).layers[0].attention.rope;
    Json scaling = {{"rope_type", rope.scaling == RopeScalingKind::kYarn ? "yarn" : "linear"},
                    {"factor", rope.factor}};
    if (rope.scaling == RopeScalingKind::kYarn) {
      scaling["original_max_position_embeddings"] = rope.original_context;
      scaling["beta_fast"] = rope.yarn_beta_fast;
      scaling["beta_slow"] = rope.yarn_beta_slow;
      scaling["attention_factor"] = rope.attention_factor;
    }
    ExpectSameModel(golden, Publish(golden, "llama", {{"rope_scaling", scaling}}));
    // As newer versions write it.
    scaling["rope_theta"] = rope.base;
    ExpectSameModel(
        golden, Publish(golden, "llama", {{"rope_parameters", scaling}, {"rope_theta", nullptr}}));
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
  EXPECT_THAT(message({}, "mamba"), HasSubstr("unsupported"));
  EXPECT_THAT(message({}, "mamba"), HasSubstr("'mamba'"));
  EXPECT_THAT(message({{"hidden_act", "quick_gelu"}}), HasSubstr("'quick_gelu'"));
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
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(message_after(write("config.json", R"({"quantization_config":)" + deep + "}")),
              HasSubstr("config.json: it is nested too deeply"));
  EXPECT_THAT(message_after(write("tokenizer.json", R"({"normalizer":)" + deep + "}")),
              HasSubstr("tokenizer.json: it is nested too deeply"));
  EXPECT_THAT(message_after(write("model.safetensors", "short")), HasSubstr("model.safetensors"));
  EXPECT_THAT(message_after([&] { std::filesystem::remove(folder_.Path("model.safetensors")); }),
              HasSubstr("there is neither model.safetensors nor"));
  for (const char* name : {"../model.safetensors", "model\\u0000.safetensors", ""}) {
    const std::string map = std::string(R"({"weight_map":{"a":")") + name + R"("}})";
    const auto write_index = [&] {
      std::filesystem::remove(folder_.Path("model.safetensors"));
      std::ofstream(folder_.Path("model.safetensors.index.json")) << map;
    };
    EXPECT_THAT(message_after(write_index), HasSubstr("files of this folder"));
    std::filesystem::remove(folder_.Path("model.safetensors.index.json"));
  }
}

// transformers 5 nests RoPE's settings by layer type.
TEST_F(ModelFolderTest, RopeParametersMayBeNestedWhereLayersAgree) {
  const GgufFile golden = Golden("llama");
  const auto base = [&](const Json& changes) {
    return ReadModelSpec(Publish(golden, "llama", changes)).layers[0].attention.rope->base;
  };
  const auto message = [&](const Json& changes) {
    try {
      Publish(golden, "llama", changes);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Json plain = {{"rope_theta", 500.0}, {"rope_type", "default"}};
  const Json other = {{"rope_theta", 700.0}, {"rope_type", "default"}};
  const Json types = {"full_attention", "full_attention"};
  EXPECT_EQ(base({{"rope_parameters", plain}}), 500);
  EXPECT_EQ(base({{"rope_parameters", {{"full_attention", plain}}}}), 500);
  const Json both = {{"full_attention", plain}, {"sliding_attention", other}};
  EXPECT_EQ(base({{"rope_parameters", both}, {"layer_types", types}}), 500)
      << "no layer has the other";
  EXPECT_THAT(message({{"rope_parameters", both}}), HasSubstr("rope_parameters"));
  EXPECT_THAT(
      message({{"rope_parameters", {{"sliding_attention", plain}}}, {"layer_types", types}}),
      HasSubstr("rope_parameters: expected 'full_attention' in it"));
  Json partial = plain;
  partial["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(message({{"rope_parameters", partial}}), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(message({{"rope_parameters", {{"full_attention", partial}}}}),
              HasSubstr("partial_rotary_factor"));
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", false}};
  EXPECT_THAT(message({{"rope_scaling", yarn}}), HasSubstr("truncate: expected true"));
  EXPECT_EQ(
      message({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", true}}}}),
      "accepted");
  const Json mixed = {"full_attention", "sliding_attention"};
  EXPECT_THAT(message({{"layer_types", mixed}, {"sliding_window", 8}}), HasSubstr("layer_types"));
  EXPECT_THAT(message({{"layer_types", {"linear_attention"}}}), HasSubstr("linear_attention"));
  EXPECT_EQ(message({{"layer_types", mixed}, {"sliding_window", nullptr}}), "accepted");
}

// Python's json module writes what JSON does not have.
TEST_F(ModelFolderTest, NumbersThatAreNotFiniteAreRead) {
  Publish(Golden("llama"), "llama");
  const Json config = Json::parse(ReadWholeFile(folder_.Path("config.json")));
  const auto message = [&](const std::string& key, const std::string& value) {
    Json without = config;
    without.erase(key);
    std::string text = without.dump();
    text.pop_back();
    std::ofstream(folder_.Path("config.json"))
        << text << R"(, "note": "NaN \"NaN\" -Infinity", ")" << key << "\": " << value << "}";
    try {
      OpenModelFolder(folder_.Path(""));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const char* value : {"NaN", "Infinity", "-Infinity", "[0.0, Infinity]"}) {
    EXPECT_EQ(message("initializer_range", value), "accepted") << value;
    EXPECT_THAT(message("rope_theta", value), HasSubstr("'rope_theta': expected a number, found"));
    EXPECT_THAT(message("hidden_act", value), HasSubstr("'hidden_act': expected a text"));
  }
  EXPECT_THAT(message("initializer_range", "nan"),
              HasSubstr("is not JSON: the first error is at line 1"));
  EXPECT_THAT(message("initializer_range", "\n\n oops"), HasSubstr("at line 3, column 2"));
  for (const char* value : {"8e26951", "-1e400", "[1, 1e999]"}) {
    EXPECT_THAT(message("initializer_range", value), HasSubstr("too large for 64-bit floating"));
  }
}

TEST_F(ModelFolderTest, FilesThatWereNotFetchedAreNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    Publish(Golden("llama"), "llama");
    std::ofstream(folder_.Path(name)) << pointer;
    EXPECT_THAT([&] { OpenModelFolder(folder_.Path("")); },
                ::testing::ThrowsMessage<Error>(::testing::AllOf(
                    HasSubstr(name), HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull"))))
        << name;
    std::ofstream(folder_.Path(name)) << "<!DOCTYPE html><title>Sign in</title>";
    EXPECT_THAT([&] { OpenModelFolder(folder_.Path("")); },
                ::testing::ThrowsMessage<Error>(HasSubstr("an HTML page")))
        << name;
  }
}

// As transformers does.
TEST_F(ModelFolderTest, ASingleFileComesBeforeAnIndex) {
  const GgufFile golden = Golden("llama");
  Publish(golden, "llama");
  std::ofstream(folder_.Path("model.safetensors.index.json"))
      << R"({"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors"}})";
  ExpectSameTensors(golden, OpenModelFolder(folder_.Path("")));
  std::filesystem::remove(folder_.Path("model.safetensors"));
  EXPECT_THAT(
      [&] { OpenModelFolder(folder_.Path("")); },
      ::testing::ThrowsMessage<Error>(HasSubstr("model-00001-of-00002.safetensors: is missing")));
  std::filesystem::remove(folder_.Path("model.safetensors.index.json"));
  std::ofstream(folder_.Path("pytorch_model.bin")) << "PK";
  EXPECT_THAT([&] { OpenModelFolder(folder_.Path("")); },
              ::testing::ThrowsMessage<Error>(HasSubstr("as in pytorch_model.bin")));
}

// Base models are saved without "model.", wrapped ones with more.
TEST_F(ModelFolderTest, TensorsMayHaveOtherPrefixes) {
  for (const char* name : {"llama", "llama-tied", "qwen2"}) {
    const GgufFile golden = Golden(name);
    const std::string type = name == std::string("qwen2") ? "qwen2" : "llama";
    for (const char* prefix :
         {"", "language_model.model.", "model.language_model.", "base_model.model.model."}) {
      SCOPED_TRACE(std::string(name) + " " + prefix);
      ExpectSameTensors(golden, PublishAs(golden, type, [&](std::string tensor) {
                          const bool is_head = tensor == "lm_head.weight";
                          if (is_head)
                            return std::string(prefix[0] == 'l' ? "language_model." : "") + tensor;
                          return prefix + tensor.substr(std::string("model.").size());
                        }));
    }
  }
  // What does not belong to the language model is still not dropped without a word.
  EXPECT_THAT(
      [&] {
        PublishAs(Golden("llama"), "llama", [](const std::string& tensor) {
          return tensor == "model.norm.weight" ? "vision.norm.weight" : "text." + tensor;
        });
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("'model.norm.weight' is missing")));
}

TEST_F(ModelFolderTest, DoublesAreReadAsFloats) {
  const GgufFile golden = Golden("llama");
  Publisher publisher(golden, "llama");
  Publish(golden, "llama");
  publisher.WriteWeights(folder_, false, {}, true);
  const GgufFile opened = OpenModelFolder(folder_.Path(""));
  ExpectSameTensors(golden, opened);
  // In pieces, from anywhere.
  const GgufTensor& tensor = opened.GetTensor("blk.0.attn_q.weight");
  const std::vector<std::byte> whole = ReadAll(opened, tensor);
  std::vector<std::byte> part(101);
  for (const uint64_t begin : {uint64_t{0}, uint64_t{3}, uint64_t{254}, tensor.bytes - 101}) {
    opened.ReadTensor(tensor, begin, part);
    const auto from = whole.begin() + static_cast<int64_t>(begin);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), from)) << begin;
  }
}

// sentence-transformers says beside the model what becomes of its hidden states.
TEST_F(ModelFolderTest, PoolingOfEmbeddingModelsIsKept) {
  const auto message = [&](const std::string& modules, const std::string& pooling) {
    std::filesystem::remove(folder_.Path("modules.json"));
    Publish(Golden("qwen3"), "qwen3");
    std::filesystem::create_directory(folder_.Path("1_Pooling"));
    std::ofstream(folder_.Path("1_Pooling/config.json")) << pooling;
    std::ofstream(folder_.Path("modules.json")) << modules;
    try {
      const GgufFile opened = OpenModelFolder(folder_.Path(""));
      const auto number = opened.metadata().FindUint("qwen3.pooling_type");
      return number ? std::to_string(*number) : std::string("none");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string usual =
      R"([{"path":"","type":"sentence_transformers.models.Transformer"},)"
      R"({"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
      R"({"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";
  EXPECT_EQ(message(usual, R"({"pooling_mode_mean_tokens":true})"), "1");
  EXPECT_EQ(message(usual, R"({"pooling_mode_cls_token":true})"), "2");
  EXPECT_EQ(message(usual, R"({"pooling_mode_cls_token":false,"pooling_mode_lasttoken":true})"),
            "3");
  EXPECT_EQ(message("[]", "{}"), "none");
  EXPECT_THAT(message(usual, R"({"pooling_mode_max_tokens":true})"),
              HasSubstr("pooling_mode_max_tokens"));
  EXPECT_THAT(message(usual, "{}"), HasSubstr("pooling"));
  EXPECT_THAT(message(usual, R"({"pooling_mode_cls_token":true,"pooling_mode_lasttoken":true})"),
              HasSubstr("found two"));
  EXPECT_THAT(message(R"([{"type":"sentence_transformers.models.Dense"}])", "{}"),
              HasSubstr("models.Dense"));
  EXPECT_THAT(message(R"([{"type":"a.Pooling","path":"../elsewhere"}])", "{}"),
              HasSubstr("a folder beside it"));
}

// A file of its own before a list, of which it is the default one.
TEST_F(ModelFolderTest, ChatTemplatesAreFoundWhereverTheyAre) {
  const auto chat_of = [&](const std::string& settings, const std::string& file) {
    Publish(Golden("llama"), "llama");
    if (!settings.empty()) std::ofstream(folder_.Path("tokenizer_config.json")) << settings;
    if (!file.empty()) std::ofstream(folder_.Path("chat_template.jinja")) << file;
    const GgufFile opened = OpenModelFolder(folder_.Path(""));
    const std::string* chat = opened.metadata().FindString("tokenizer.chat_template");
    return chat != nullptr ? *chat : "none";
  };
  EXPECT_EQ(chat_of(R"({"chat_template":"one"})", ""), "one");
  EXPECT_EQ(chat_of(R"({"chat_template":[{"name":"tool_use","template":"a"},)"
                    R"({"name":"default","template":"b"}]})",
                    ""),
            "b");
  EXPECT_EQ(chat_of(R"({"chat_template":[]})", ""), "none");
  EXPECT_EQ(chat_of(R"({"chat_template":"one"})", "two"), "two");
  EXPECT_THAT([&] { chat_of(R"({"chat_template":7})", ""); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("chat_template: expected a text or a list, found number")));
}

}  // namespace
}  // namespace hearth
