// What each kind of change makes of a published tensor, against values that are written here. Whole
// families are held against the public converter by tools/check_convert.py.
#include <gmock/gmock.h>

#include "base/error.h"
#include "import/test_published_folder.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Floats = std::vector<float>;

std::vector<uint64_t> ShapeOf(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = file.GetTensor(name);
  return {tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims};
}

using PublishedFamilyTest = PublishedFolderTest;

TEST_F(PublishedFamilyTest, LlamaPairsRowsOfHeadsAndMayHaveBiases) {
  AddUsual();
  AddUsualFfn();
  AddToLayer("self_attn.q_proj.bias", {8}, 10);
  AddToLayer("self_attn.q_proj.weight", {8, 1});
  AddToLayer("mlp.gate_proj.bias", {kFfn});
  AddToLayer("mlp.up_proj.bias", {kFfn});
  AddToLayer("mlp.down_proj.bias", {kHidden}, 7);
  Json config = UsualConfig("llama");
  config["head_dim"] = 4;
  AddToLayer("self_attn.k_proj.weight", {4, kHidden});
  const GgufFile file = Open(config);
  EXPECT_THAT(ReadValues<float>(file, "blk.0.attn_q.weight"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.attn_q.bias"),
              ElementsAre(10, 12, 11, 13, 14, 16, 15, 17));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_down.bias"), ElementsAre(7, 8, 9, 10));
}

TEST_F(PublishedFamilyTest, GemmasNormsHaveOneAdded) {
  AddUsual();
  AddUsualFfn();
  tensors_.erase("lm_head.weight");
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    AddToLayer(std::string(norm) + ".weight", {kHidden}, 4);
  }
  Add("model.norm.weight", {kHidden}, -3);
  Json config = UsualConfig("gemma2");
  config["query_pre_attn_scalar"] = 2;
  config["sliding_window"] = 9;
  config["final_logit_softcapping"] = 20;
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    const GgufFile file = Open(config, dtype);
    EXPECT_THAT(ReadValues<float>(file, "output_norm.weight"), ElementsAre(-2, -1, 0, 1));
    EXPECT_THAT(ReadValues<float>(file, "blk.0.post_ffw_norm.weight"), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_norm.weight"), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(ReadValues<float>(file, "blk.0.post_attention_norm.weight"),
                ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(NameOf(file.GetTensor("blk.0.ffn_down.weight").dtype), std::string(dtype));
  }
  const ModelSpec spec = ReadModelSpec(Open(config));
  EXPECT_EQ(spec.layers[0].attention.sliding_window, 9);
  EXPECT_EQ(spec.layers[0].attention.softcap, 50);
  EXPECT_EQ(spec.logit_softcap, 20);
  config["query_pre_attn_scalar"] = 3;
  EXPECT_THAT(Message(config), HasSubstr("query_pre_attn_scalar: expected 2, found 3"));
}

TEST_F(PublishedFamilyTest, Gemma3HasABaseForLayersWithAWindow) {
  AddUsual();
  AddUsualFfn();
  tensors_.erase("lm_head.weight");
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    AddToLayer(std::string(norm) + ".weight", {kHidden});
  }
  AddToLayer("self_attn.q_norm.weight", {2}, 1);
  AddToLayer("self_attn.k_norm.weight", {2}, 1);
  Json config = UsualConfig("gemma3_text");
  config["query_pre_attn_scalar"] = 2;
  config["sliding_window_pattern"] = 6;
  config["rope_theta"] = 700;
  config["rope_local_base_freq"] = 70;
  const auto bases = [&] {
    const GgufFile file = Open(config);
    return std::pair(file.metadata().GetFloat("gemma3.rope.freq_base"),
                     file.metadata().GetFloat("gemma3.rope.freq_base_swa"));
  };
  EXPECT_EQ(bases(), std::pair(700.0, 70.0));
  EXPECT_THAT(ReadValues<float>(Open(config), "blk.0.attn_q_norm.weight"), ElementsAre(2, 3));
  config["rope_parameters"] = {{"full_attention", {{"rope_theta", 900}}},
                               {"sliding_attention", {{"rope_theta", 90}}}};
  EXPECT_EQ(bases(), std::pair(900.0, 90.0));
  config["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
  EXPECT_THAT(Message(config), HasSubstr("default in layers with a window"));
  config.erase("rope_parameters");
  config["layer_types"] = {"full_attention"};
  EXPECT_THAT(Message(config), HasSubstr("full_attention\" in layer 0"));
  config.erase("layer_types");
  config["sliding_window_pattern"] = 5;
  EXPECT_THAT(Message(config), HasSubstr("sliding_window_pattern: expected 6, found 5"));
}

// A model that reads images has its text part in other words.
TEST_F(PublishedFamilyTest, ThePartThatReadsTextIsTakenAlone) {
  AddUsual();
  AddUsualFfn();
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    AddToLayer(std::string(norm) + ".weight", {kHidden});
  }
  AddToLayer("self_attn.q_norm.weight", {2});
  AddToLayer("self_attn.k_norm.weight", {2});
  tensors_.erase("lm_head.weight");
  auto text = std::move(tensors_);
  tensors_.clear();
  for (auto& [name, tensor] : text) tensors_["language_model." + name] = std::move(tensor);
  Add("vision_tower.patch.weight", {2, 2, 2, 2});
  Json part = UsualConfig("gemma3_text");
  part["query_pre_attn_scalar"] = 2;
  const Json config = {
      {"model_type", "gemma3"}, {"text_config", part}, {"vision_config", {{"hidden_size", 99}}}};
  const GgufFile file = Open(config);
  EXPECT_THAT(WhatIsLeftOut(folder_.Path("")), ElementsAre(HasSubstr("reads images")));
  EXPECT_EQ(file.metadata().GetString("general.architecture"), "gemma3");
  EXPECT_EQ(ReadModelSpec(file).hidden_size, 4);
  Add("audio_tower.weight", {2});
  EXPECT_THAT(Message(config), HasSubstr("'audio_tower.weight' is not part"));
  tensors_.erase("audio_tower.weight");
  // The sizes that such files leave out.
  part.erase("num_attention_heads");
  part.erase("head_dim");
  EXPECT_THAT(Message({{"model_type", "gemma3"}, {"text_config", part}}),
              HasSubstr("query_pre_attn_scalar: expected 256, found 2"));
}

TEST_F(PublishedFamilyTest, Ministral3sQueriesGrowWithThePosition) {
  AddUsual();
  AddUsualFfn();
  Json config = UsualConfig("ministral3");
  config["rope_parameters"] = {{"rope_type", "yarn"},
                               {"factor", 8},
                               {"mscale", 1},
                               {"mscale_all_dim", 1},
                               {"llama_4_scaling_beta", 0.5},
                               {"original_max_position_embeddings", 16}};
  const AttentionSpec attention = ReadModelSpec(Open(config)).layers[0].attention;
  EXPECT_EQ(attention.temperature_scale, 0.5);
  EXPECT_EQ(attention.temperature_period, 16);
  EXPECT_NEAR(attention.rope->attention_factor, 1, 1e-6);
  config["rope_parameters"]["mscale_all_dim"] = nullptr;
  EXPECT_NEAR(ReadModelSpec(Open(config)).layers[0].attention.rope->attention_factor, 1.20794,
              1e-5);
  config["rope_parameters"]["mscale"] = 2;
  EXPECT_THAT(Message(config), HasSubstr("mscale: expected 1, found 2"));
  config["model_type"] = "llama";
  EXPECT_THAT(Message(config), HasSubstr("mscale: expected nothing, found 2"));
}

TEST_F(PublishedFamilyTest, MatricesOfGpt2AreTransposed) {
  Add("wte.weight", {kTokens, kHidden});
  Add("wpe.weight", {32, kHidden});
  for (const char* norm : {"ln_f", "h.0.ln_1", "h.0.ln_2"}) {
    Add(std::string(norm) + ".weight", {kHidden});
    Add(std::string(norm) + ".bias", {kHidden}, 5);
  }
  Add("h.0.attn.c_attn.weight", {kHidden, 12});
  Add("h.0.attn.c_attn.bias", {12});
  Add("h.0.attn.c_proj.weight", {kHidden, kHidden});
  Add("h.0.attn.c_proj.bias", {kHidden});
  Add("h.0.mlp.c_fc.weight", {kHidden, 16});
  Add("h.0.mlp.c_fc.bias", {16});
  Add("h.0.mlp.c_proj.weight", {16, kHidden});
  Add("h.0.mlp.c_proj.bias", {kHidden});
  Add("h.0.attn.bias", {1, 1, 2, 2});  // a mask
  const Json config = {{"model_type", "gpt2"}, {"n_embd", kHidden}, {"n_layer", 1},
                       {"n_head", 2},          {"n_positions", 32}, {"vocab_size", kTokens}};
  for (const char* dtype : {"F32", "BF16"}) {
    const GgufFile file = Open(config, dtype);
    EXPECT_EQ(ShapeOf(file, "blk.0.attn_qkv.weight"), (std::vector<uint64_t>{4, 12}));
    EXPECT_EQ(ShapeOf(file, "blk.0.ffn_down.weight"), (std::vector<uint64_t>{16, 4}));
  }
  const GgufFile file = Open(config);
  EXPECT_THAT(ReadValues<float>(file, "blk.0.attn_output.weight"),
              ElementsAre(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  EXPECT_THAT(ReadValues<float>(file, "output_norm.bias"), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(ReadModelSpec(file).layers[0].ffn.intermediate_size, 16) << "four times hidden";
  // Read from anywhere.
  const GgufTensor& tensor = file.GetTensor("blk.0.ffn_up.weight");
  const std::vector<std::byte> whole = ReadAll(file, tensor);
  for (uint64_t begin = 0; begin < tensor.bytes; begin += 5) {
    std::vector<std::byte> part(std::min<uint64_t>(37, tensor.bytes - begin));
    file.ReadTensor(tensor, begin, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<int64_t>(begin)))
        << begin;
  }
  Json scaled = config;
  scaled["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_THAT(Message(scaled), HasSubstr("scale_attn_by_inverse_layer_idx: expected false"));
}

TEST_F(PublishedFamilyTest, FalconsHeadsAreSortedByKind) {
  Add("transformer.word_embeddings.weight", {kTokens, kHidden});
  for (const char* norm : {"ln_f", "h.0.ln_attn", "h.0.ln_mlp"}) {
    Add(std::string("transformer.") + norm + ".weight", {kHidden}, norm[4] == 'l' ? norm[7] : 0);
    Add(std::string("transformer.") + norm + ".bias", {kHidden});
  }
  // Two key heads with two queries each, of one number.
  Add("transformer.h.0.self_attention.query_key_value.weight", {8, kHidden});
  Add("transformer.h.0.self_attention.dense.weight", {kHidden, kHidden});
  Add("transformer.h.0.mlp.dense_h_to_4h.weight", {16, kHidden});
  Add("transformer.h.0.mlp.dense_4h_to_h.weight", {kHidden, 16});
  Json config = {{"model_type", "falcon"}, {"hidden_size", kHidden},
                 {"num_hidden_layers", 1}, {"num_attention_heads", 4},
                 {"num_kv_heads", 2},      {"new_decoder_architecture", true},
                 {"vocab_size", kTokens}};
  const GgufFile file = Open(config);
  const Floats qkv = ReadValues<float>(file, "blk.0.attn_qkv.weight");
  Floats firsts;
  for (size_t row = 0; row < 8; ++row) firsts.push_back(qkv[row * kHidden]);
  // Rows of queries 0, 1, 4, 5, of keys 2, 6, of values 3, 7.
  EXPECT_THAT(firsts, ElementsAre(0, 4, 16, 20, 8, 24, 12, 28));
  EXPECT_EQ(ReadValues<float>(file, "blk.0.attn_norm_2.weight")[0], 'a');
  EXPECT_EQ(ReadValues<float>(file, "blk.0.attn_norm.weight")[0], 'm');
  config["alibi"] = true;
  EXPECT_THAT(Message(config), HasSubstr("alibi: expected false, found true"));
  config["alibi"] = false;
  for (const int heads : {0, 3, 4}) {
    config["num_kv_heads"] = heads;
    EXPECT_THAT(Message(config),
                HasSubstr("4 heads and " + std::to_string(heads) + " key heads of 1"));
  }
}

TEST_F(PublishedFamilyTest, GranitesExpertsAreCutInHalves) {
  AddUsual();
  AddToLayer("block_sparse_moe.router.layer.weight", {2, kHidden});
  AddToLayer("block_sparse_moe.input_linear.weight", {2, 2, kHidden});
  AddToLayer("block_sparse_moe.output_linear.weight", {2, kHidden, 1});
  Json config = UsualConfig("granitemoe");
  config.update({{"intermediate_size", 1},
                 {"num_local_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"embedding_multiplier", 12},
                 {"logits_scaling", 8}});
  const GgufFile file = Open(config);
  EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_gate_exps.weight"),
              ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_up_exps.weight"),
              ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_EQ(ShapeOf(file, "blk.0.ffn_up_exps.weight"), (std::vector<uint64_t>{4, 1, 2}));
  const ModelSpec spec = ReadModelSpec(file);
  EXPECT_EQ(spec.embedding_scale, 12);
  EXPECT_EQ(spec.logit_scale, 1.0 / 8);
  EXPECT_EQ(spec.layers[0].attention.query_scale, 1) << "attention_multiplier's default";
}

TEST_F(PublishedFamilyTest, GptOssAlternatesGatesAndUps) {
  AddUsual();
  AddToLayer("self_attn.sinks", {2}, 30);
  AddToLayer("mlp.router.weight", {2, kHidden});
  AddToLayer("mlp.router.bias", {2});
  AddToLayer("mlp.experts.gate_up_proj", {2, kHidden, 2 * kFfn});
  AddToLayer("mlp.experts.gate_up_proj_bias", {2, 2 * kFfn});
  AddToLayer("mlp.experts.down_proj", {2, kFfn, kHidden});
  AddToLayer("mlp.experts.down_proj_bias", {2, kHidden});
  Json config = UsualConfig("gpt_oss");
  config.update({{"num_local_experts", 2}, {"num_experts_per_tok", 1}});
  for (const char* module : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    const std::string name = std::string("self_attn.") + module;
    AddToLayer(name + ".bias", {tensors_["model.layers.0." + name + ".weight"].first[0]});
  }
  const GgufFile file = Open(config);
  const Floats gates = ReadValues<float>(file, "blk.0.ffn_gate_exps.weight");
  const Floats ups = ReadValues<float>(file, "blk.0.ffn_up_exps.weight");
  EXPECT_EQ(ShapeOf(file, "blk.0.ffn_gate_exps.weight"), (std::vector<uint64_t>{4, 3, 2}));
  EXPECT_THAT(Floats(gates.begin(), gates.begin() + 8), ElementsAre(0, 6, 12, 18, 2, 8, 14, 20));
  EXPECT_THAT(Floats(ups.begin() + 12, ups.begin() + 20),
              ElementsAre(25, 31, 37, 43, 27, 33, 39, 45));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_gate_exps.bias"), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.ffn_up_exps.bias"), ElementsAre(1, 3, 5, 7, 9, 11));
  const Floats downs = ReadValues<float>(file, "blk.0.ffn_down_exps.weight");
  EXPECT_THAT(Floats(downs.begin() + 12, downs.begin() + 18), ElementsAre(12, 16, 20, 13, 17, 21));
  EXPECT_THAT(ReadValues<float>(file, "blk.0.attn_sinks.weight"), ElementsAre(30, 31));
  EXPECT_TRUE(ReadModelSpec(file).layers[0].attention.sinks);
  config["swiglu_limit"] = 3;
  EXPECT_THAT(Message(config), HasSubstr("swiglu_limit: expected 7, found 3"));
  config["swiglu_limit"] = 7;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2}};
  EXPECT_THAT(Message(config), HasSubstr("truncate: expected false, found true"));
}

TEST_F(PublishedFamilyTest, LongRopeIsTwoTensorsAndAFactor) {
  AddUsual();
  AddToLayer("self_attn.qkv_proj.weight", {8, kHidden});
  for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
    tensors_.erase(std::string("model.layers.0.self_attn.") + module + ".weight");
  }
  AddToLayer("mlp.gate_up_proj.weight", {2 * kFfn, kHidden});
  AddToLayer("mlp.down_proj.weight", {kHidden, kFfn});
  Json config = UsualConfig("phi3");
  config["original_max_position_embeddings"] = 4;
  config["rope_scaling"] = {{"type", "longrope"}, {"short_factor", {1.5}}, {"long_factor", {6}}};
  const GgufFile file = Open(config);
  EXPECT_THAT(ReadValues<float>(file, "rope_factors_short.weight"), ElementsAre(1.5f));
  EXPECT_THAT(ReadValues<float>(file, "rope_factors_long.weight"), ElementsAre(6));
  const RopeSpec rope = *ReadModelSpec(file).layers[0].attention.rope;
  EXPECT_EQ(rope.scaling, RopeScalingKind::kLong);
  EXPECT_EQ(rope.original_context, 4);
  EXPECT_NEAR(rope.attention_factor, 1.58114, 1e-5) << "the root of 1 + ln 8 / ln 4";
  config["rope_scaling"]["long_factor"] = {6, 7};
  EXPECT_THAT(Message(config), HasSubstr("long_factor: expected a list of 1 positive numbers"));
  config["rope_scaling"] = nullptr;
  config["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(Message(config), HasSubstr("partial_rotary_factor"));
}

// One dense layer, one of experts and one that guesses ahead.
TEST_F(PublishedFamilyTest, GlmsLayersAreOfThreeKinds) {
  for (const std::string layer : {"0.", "1.", "2."}) {
    AddUsual();
    AddUsualFfn();
    std::map<std::string, std::pair<std::vector<uint64_t>, std::vector<float>>> all = tensors_;
    for (const auto& [name, tensor] : all) {
      if (!name.starts_with("model.layers.0.")) continue;
      const std::string rest = name.substr(std::string("model.layers.0.").size());
      if (layer != "0." && rest.starts_with("mlp.")) continue;
      tensors_["model.layers." + layer + rest] = tensor;
    }
    if (layer == "0.") continue;
    const std::string mlp = "model.layers." + layer + "mlp.";
    Add(mlp + "gate.weight", {2, kHidden});
    Add(mlp + "gate.e_score_correction_bias", {2}, 3);
    for (const std::string of : {"experts.0.", "experts.1.", "shared_experts."}) {
      const float first = of == "experts.1." ? 100 : 0;
      Add(mlp + of + "gate_proj.weight", {2, kHidden}, first);
      Add(mlp + of + "up_proj.weight", {2, kHidden}, first);
      Add(mlp + of + "down_proj.weight", {kHidden, 2}, first);
    }
  }
  for (const char* norm : {"enorm", "hnorm", "shared_head.norm"}) {
    Add(std::string("model.layers.2.") + norm + ".weight", {kHidden});
  }
  Add("model.layers.2.eh_proj.weight", {kHidden, 2 * kHidden});
  Json config = UsualConfig("glm4_moe");
  config.update({{"num_hidden_layers", 2},
                 {"head_dim", 4},
                 {"num_attention_heads", 1},
                 {"n_routed_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"moe_intermediate_size", 2},
                 {"n_shared_experts", 1},
                 {"first_k_dense_replace", 1},
                 {"routed_scaling_factor", 2.5}});
  for (const std::string layer : {"0.", "1.", "2."}) {
    for (const char* module : {"k_proj", "v_proj"}) {
      Add("model.layers." + layer + "self_attn." + module + ".weight", {4, kHidden});
    }
  }
  const GgufFile file = Open(config);
  EXPECT_EQ(file.metadata().GetUint("glm4moe.block_count"), 3u);
  EXPECT_EQ(file.metadata().GetUint("glm4moe.nextn_predict_layers"), 1u);
  EXPECT_EQ(file.metadata().GetUint("glm4moe.rope.dimension_count"), 2u) << "half of a head";
  EXPECT_THAT(ReadValues<float>(file, "blk.1.ffn_gate_exps.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104, 105, 106, 107));
  EXPECT_THAT(ReadValues<float>(file, "blk.1.exp_probs_b.bias"), ElementsAre(3, 4));
  EXPECT_NE(file.FindTensorOrNull("blk.0.ffn_gate.weight"), nullptr);
  EXPECT_NE(file.FindTensorOrNull("blk.2.nextn.eh_proj.weight"), nullptr);
  const ModelSpec spec = ReadModelSpec(file);
  EXPECT_EQ(spec.num_layers, 2);
  EXPECT_EQ(spec.layers[0].ffn.num_experts, 0);
  EXPECT_EQ(spec.layers[1].ffn.num_experts, 2);
  EXPECT_EQ(spec.layers[1].ffn.expert_weight_scale, 2.5f);
}

TEST_F(PublishedFamilyTest, SmallThinkersLayoutsAreThoseThatGgufCanSay) {
  AddUsual();
  AddToLayer("block_sparse_moe.primary_router.weight", {2, kHidden}, 50);
  for (const std::string expert : {"0.", "1."}) {
    const std::string of = "block_sparse_moe.experts." + expert;
    const float first = expert == "1." ? 100 : 0;
    AddToLayer(of + "gate.weight", {kFfn, kHidden}, first);
    AddToLayer(of + "up.weight", {kFfn, kHidden}, first + 20);
    AddToLayer(of + "down.weight", {kHidden, kFfn}, first + 40);
  }
  const auto layer = tensors_;
  for (const auto& [name, tensor] : layer) {
    const std::string prefix = "model.layers.0.";
    if (name.starts_with(prefix)) tensors_["model.layers.1." + name.substr(prefix.size())] = tensor;
  }
  Json config = UsualConfig("smallthinker");
  config.erase("intermediate_size");
  config.update({{"num_hidden_layers", 2},
                 {"tie_word_embeddings", false},
                 {"moe_num_primary_experts", 2},
                 {"moe_num_active_primary_experts", 1},
                 {"moe_ffn_hidden_size", kFfn},
                 {"rope_layout", {1, 1}},
                 {"sliding_window_layout", {0, 0}},
                 {"sliding_window_size", 9}});
  const GgufFile file = Open(config);
  EXPECT_EQ(ReadValues<float>(file, "blk.1.ffn_gate_inp.weight")[0], 50);
  EXPECT_EQ(ReadValues<float>(file, "blk.0.ffn_up_exps.weight")[kFfn * kHidden], 120);
  ModelSpec spec = ReadModelSpec(file);
  EXPECT_EQ(spec.layers[1].attention.sliding_window, 0);
  EXPECT_TRUE(spec.layers[0].attention.rope);
  EXPECT_TRUE(spec.layers[0].ffn.routes_before_attention);
  EXPECT_EQ(spec.layers[0].ffn.router_score, RouterScore::kSigmoid);
  EXPECT_EQ(spec.layers[0].ffn.activation, FfnActivation::kRelu);
  config.update({{"sliding_window_layout", {0, 1}},
                 {"rope_layout", {0, 1}},
                 {"moe_primary_router_apply_softmax", true}});
  spec = ReadModelSpec(Open(config));
  EXPECT_EQ(spec.layers[0].attention.sliding_window, 0);
  EXPECT_EQ(spec.layers[1].attention.sliding_window, 9);
  EXPECT_FALSE(spec.layers[0].attention.rope);
  EXPECT_TRUE(spec.layers[1].attention.rope);
  EXPECT_EQ(spec.layers[0].ffn.router_score, RouterScore::kSoftmax);
  const auto message = [&](const char* key, const Json& value) {
    Json changed = config;
    changed[key] = value;
    return Message(changed);
  };
  EXPECT_THAT(message("rope_layout", {1, 1}), HasSubstr("rope_layout: expected 0 in the first"));
  EXPECT_THAT(message("rope_layout", nullptr), HasSubstr("found nothing"));
  EXPECT_THAT(message("sliding_window_layout", {1, 1}), HasSubstr("found 1 in layer 0"));
  EXPECT_THAT(message("sliding_window_layout", {0, 0}), HasSubstr("rope_layout: expected 1 in"));
  EXPECT_THAT(message("sliding_window_size", nullptr), HasSubstr("sliding_window_size"));
  EXPECT_THAT(message("moe_layer_layout", {0, 1}), HasSubstr("experts in every layer"));
  EXPECT_THAT(message("moe_enable_early_router", false), HasSubstr("expected true, found false"));
  EXPECT_THAT(message("moe_enable_secondary_experts", true), HasSubstr("expected false"));
  EXPECT_THAT(message("moe_shared_primary_experts", 1), HasSubstr("expected 0, found 1"));
  EXPECT_THAT(message("norm_topk_prob", false), HasSubstr("expected true"));
  EXPECT_THAT(message("use_qk_norm", true), HasSubstr("use_qk_norm"));
}

TEST_F(PublishedFamilyTest, WhatFamiliesDoNotHaveIsRefusedByName) {
  AddUsual();
  AddUsualFfn();
  const auto message = [&](const std::string& type, const std::string& key, const Json& value) {
    Json config = UsualConfig(type);
    config[key] = value;
    return Message(config);
  };
  EXPECT_EQ(message("llama", "embedding_multiplier", 1), "accepted");
  EXPECT_EQ(message("llama", "attn_logit_softcapping", nullptr), "accepted");
  EXPECT_THAT(message("llama", "embedding_multiplier", 2),
              HasSubstr("embedding_multiplier: expected 1 in a 'llama' model, found 2"));
  EXPECT_THAT(message("qwen2", "final_logit_softcapping", 30),
              HasSubstr("final_logit_softcapping: expected nothing in a 'qwen2' model"));
  EXPECT_THAT(message("smollm3", "no_rope_layers", {0}),
              HasSubstr("no_rope_layers: expected 0 in every fourth layer"));
  EXPECT_THAT(message("smollm3", "no_rope_layers", {1, 1}), HasSubstr("a list of 1"));
  EXPECT_THAT(message("smollm3", "no_rope_layer_interval", 3), HasSubstr("expected 4, found 3"));
  EXPECT_THAT(message("gpt_oss", "quantization_config", {{"quant_method", "mxfp4"}}),
              HasSubstr("quantization_config: quant_method: expected gptq, awq, fp8"));
  // Norms of heads belong to other families.
  AddToLayer("self_attn.q_norm.weight", {2});
  EXPECT_THAT(message("llama", "vocab_size", 8),
              HasSubstr("'model.layers.0.self_attn.q_norm.weight' is not part of a 'llama'"));
  tensors_.erase("model.layers.0.self_attn.q_norm.weight");
  AddToLayer("input_layernorm.bias", {kHidden});
  EXPECT_THAT(message("llama", "vocab_size", 8), HasSubstr("input_layernorm.bias"));
}

}  // namespace
}  // namespace hearth
