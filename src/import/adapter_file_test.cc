#include "import/adapter_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "base/error.h"
#include "base/test_data.h"
#include "format/test_tensors.h"
#include "import/peft_config.h"
#include "model/registry.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct NamedShape {
  std::string name;
  std::vector<uint64_t> shape;
};

// A safetensors file of F32 tensors that count 0, 1, 2, ...
std::string Safetensors(const std::vector<NamedShape>& tensors, const std::string& dtype = "F32") {
  json header = json::object();
  std::string data;
  for (const NamedShape& tensor : tensors) {
    uint64_t count = 1;
    for (const uint64_t size : tensor.shape) count *= size;
    const size_t begin = data.size();
    for (uint64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    header[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data;
}

class AdapterFileTest : public ::testing::Test {
 protected:
  AdapterFileTest() { fs::create_directories(folder_); }
  ~AdapterFileTest() override { fs::remove_all(folder_); }

  static ModelSpec Spec(const std::string& golden) {
    return ReadModelSpec(GgufFile::Open(SourcePath("tests/goldens/") + golden + ".gguf"));
  }
  void Write(const json& config, const std::string& weights) const {
    std::ofstream(folder_ + "/adapter_config.json") << config.dump();
    std::ofstream(folder_ + "/adapter_model.safetensors", std::ios::binary) << weights;
  }
  AdapterFile Open(const std::string& golden = "llama") const {
    return OpenAdapter(folder_, Spec(golden));
  }
  void ExpectRefused(const json& config, const std::string& sentence) const {
    Write(config, Safetensors(Module("model.layers.0.self_attn.v_proj", 2)));
    EXPECT_THAT([&] { Open(); }, ThrowsMessage<Error>(HasSubstr(sentence))) << config;
  }
  void ExpectTensorsRefused(const std::vector<NamedShape>& tensors,
                            const std::string& sentence) const {
    Write({{"r", 2}, {"lora_alpha", 1}}, Safetensors(tensors));
    EXPECT_THAT([&] { Open(); }, ThrowsMessage<Error>(HasSubstr(sentence)));
  }
  // The two tensors of a module of the golden "llama" with 48 inputs and 32 outputs.
  static std::vector<NamedShape> Module(const std::string& name, uint64_t rank) {
    return {{"base_model.model." + name + ".lora_A.weight", {rank, 48}},
            {"base_model.model." + name + ".lora_B.weight", {32, rank}}};
  }

  const std::string folder_ = ::testing::TempDir() + "adapter_file." + std::to_string(getpid());
};

TEST_F(AdapterFileTest, NamesAndScalesAreThoseOfTheBase) {
  std::vector<NamedShape> tensors = Module("model.layers.1.self_attn.v_proj", 2);
  for (const NamedShape& tensor : Module("model.language_model.layers.0.mlp.up_proj", 3)) {
    tensors.push_back(tensor);
  }
  Write({{"peft_type", "LORA"},
         {"r", 2},
         {"lora_alpha", 8},
         {"use_rslora", true},
         {"rank_pattern", {{"up_proj", 3}}},
         {"alpha_pattern", {{"layers.1.self_attn.v_proj", 6}}}},
        Safetensors(tensors));
  const AdapterFile adapter = Open();
  ASSERT_EQ(adapter.file.tensors().size(), 4u);
  EXPECT_EQ(adapter.file.GetTensor("blk.1.attn_v.weight.lora_a").ne[1], 2u);
  EXPECT_EQ(adapter.file.GetTensor("blk.0.ffn_up.weight.lora_b").ne[0], 3u);
  EXPECT_DOUBLE_EQ(adapter.scales.at("blk.1.attn_v.weight"), 6 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(adapter.scales.at("blk.0.ffn_up.weight"), 8 / std::sqrt(3.0));
  EXPECT_EQ(ReadValues<float>(adapter.file, "blk.1.attn_v.weight.lora_b")[5], 5.0f);
}

// Of heads of 16 rows, row 2i of GGUF's is the published row i, and row 2i + 1 is row i + 8.
TEST_F(AdapterFileTest, RowsOfQueriesFollowTheBase) {
  Write({{"r", 1}, {"lora_alpha", 1}},
        Safetensors({{"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", {1, 48}},
                     {"base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight", {32, 1}}}));
  const AdapterFile adapter = Open();
  const auto b = ReadValues<float>(adapter.file, "blk.0.attn_k.weight.lora_b");
  for (size_t row = 0; row < 32; ++row) {
    const size_t in_head = row % 16;
    EXPECT_EQ(b[row], static_cast<float>(row - in_head + in_head / 2 + in_head % 2 * 8)) << row;
  }
  const AdapterFile other = Open("qwen2");
  EXPECT_EQ(ReadValues<float>(other.file, "blk.0.attn_k.weight.lora_b")[1], 1.0f);
}

TEST_F(AdapterFileTest, SettingsThatChangeResultsAreRefusedByName) {
  const json plain = {{"r", 2}, {"lora_alpha", 1}};
  const auto with = [&](const char* key, const json& value) {
    json config = plain;
    config[key] = value;
    return config;
  };
  for (const char* key : {"use_dora", "use_qalora", "lora_bias", "use_bdlora", "a_later_setting"}) {
    ExpectRefused(with(key, true), std::string("'") + key + "' is set");
  }
  ExpectRefused(with("modules_to_save", {"lm_head"}), "'modules_to_save' is set");
  ExpectRefused(with("layer_replication", json::array({{0, 4}})), "'layer_replication' is set");
  ExpectRefused(with("trainable_token_indices", {1}), "'trainable_token_indices' is set");
  ExpectRefused(with("target_parameters", {"x"}), "'target_parameters' is set");
  ExpectRefused(with("alora_invocation_tokens", {5}), "'alora_invocation_tokens' is set");
  ExpectRefused(with("bias", "all"), "bias: expected none, found 'all'");
  ExpectRefused(with("peft_type", "IA3"), "peft_type: expected LORA, found 'IA3'");
  ExpectRefused(with("fan_in_fan_out", true), "'fan_in_fan_out' is set");
  ExpectRefused(with("init_lora_weights", "pissa_niter_4"), "'pissa' changed the base's weights");
  ExpectRefused(with("r", 0), "r (the adapter's rank): expected at least 1, found 0");
  ExpectRefused(with("r", 3), "expected 3, as adapter_config.json says, found 2");
  ExpectRefused(with("lora_alpha", "x"), "lora_alpha: expected a number over 0");
  ExpectRefused(with("lora_alpha", -1), "lora_alpha: expected a number over 0");
  ExpectRefused({{"r", 2}}, "'lora_alpha' is missing");
  ExpectRefused({{"lora_alpha", 2}}, "'r'");
  ExpectRefused(with("rank_pattern", {{".*v_proj", 2}}), "a regular expression");
  ExpectRefused(with("alpha_pattern", {{"v_proj", 2}, {"self_attn.v_proj", 3}}),
                "two with different values");
}

TEST_F(AdapterFileTest, TensorsThatAreNoTermsAreRefusedByName) {
  const std::string v = "model.layers.0.self_attn.v_proj";
  const auto whole = Module(v, 2);
  const std::string outer = "base_model.model.";
  ExpectTensorsRefused({whole[0]}, "has only one of lora_A and lora_B");
  ExpectTensorsRefused({whole[0], whole[1], {v + ".lora_A.weight", {2, 48}}},
                       "are the same one of a module");
  auto twice = Module("layers.0.self_attn.v_proj", 2);
  twice.insert(twice.end(), whole.begin(), whole.end());
  ExpectTensorsRefused(twice, "expected a name of its own");
  ExpectTensorsRefused({whole[0], whole[1], {outer + v + ".lora_magnitude_vector", {32}}},
                       "lora_magnitude_vector'");
  ExpectTensorsRefused({{outer + "model.embed_tokens.lora_embedding_A", {2, 48}}},
                       "lora_embedding_A'");
  ExpectTensorsRefused(Module("lm_head", 2), "'lm_head' is no matrix of a 'llama' model");
  ExpectTensorsRefused(Module("model.layers.0.mlp.experts.1.w1", 2), "adapters of experts");
  ExpectTensorsRefused(Module("vision_tower.layers.0.self_attn.v_proj", 2), "is no matrix");
  ExpectTensorsRefused(Module("model.layers.x.self_attn.v_proj", 2), "is no matrix");
  ExpectTensorsRefused(Module("model.layers.99999999999999999999.self_attn.v_proj", 2),
                       "is no matrix");
  ExpectTensorsRefused({{whole[0].name, {2, 48, 1}}, whole[1]}, "two sizes");
  ExpectTensorsRefused({{whole[0].name, {0, 48}}, {whole[1].name, {32, 0}}},
                       "shape: expected at least 1 each");
  ExpectTensorsRefused({}, "it has no tensors");
  const std::string k = outer + "model.layers.0.self_attn.k_proj";
  ExpectTensorsRefused({{k + ".lora_A.weight", {2, 48}}, {k + ".lora_B.weight", {20, 2}}},
                       "heads of 16");
  const std::string far = outer + "model.layers.3.self_attn.k_proj";
  ExpectTensorsRefused({{far + ".lora_A.weight", {2, 48}}, {far + ".lora_B.weight", {32, 2}}},
                       "a layer below 3");
  Write({{"r", 2}, {"lora_alpha", 1}}, Safetensors(whole, "I32"));
  EXPECT_THAT([&] { Open(); }, ThrowsMessage<Error>(HasSubstr("expected F32, F16 or BF16")));
}

TEST_F(AdapterFileTest, MissingFilesAreNamed) {
  Write({{"r", 2}, {"lora_alpha", 1}}, Safetensors(Module("model.layers.0.mlp.up_proj", 2)));
  EXPECT_EQ(OpenAdapter(folder_ + "/adapter_model.safetensors", Spec("llama")).scales.size(), 1u);
  fs::remove(folder_ + "/adapter_model.safetensors");
  EXPECT_THAT([&] { Open(); }, ThrowsMessage<Error>(HasSubstr("adapter_model.safetensors")));
  fs::remove(folder_ + "/adapter_config.json");
  EXPECT_THAT([&] { Open(); }, ThrowsMessage<Error>(HasSubstr("adapter_config.json: is missing")));
}

// Cut or altered at random: an error or an adapter, never a crash.
TEST_F(AdapterFileTest, DamagedFilesAreRefusedOrRead) {
  const json config = {{"r", 2}, {"lora_alpha", 1}, {"rank_pattern", {{"q_proj", 4}}}};
  const std::string weights = Safetensors(Module("model.layers.0.self_attn.v_proj", 2));
  std::mt19937 random(9);
  for (int trial = 0; trial < 400; ++trial) {
    std::string text = config.dump(), bytes = weights;
    std::string& damaged = trial % 2 == 0 ? text : bytes;
    const size_t reach = std::min<size_t>(damaged.size(), 260);
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      damaged[random() % reach] = static_cast<char>(random());
    }
    if (trial % 5 == 0) damaged.resize(random() % damaged.size());
    std::ofstream(folder_ + "/adapter_config.json") << text;
    std::ofstream(folder_ + "/adapter_model.safetensors", std::ios::binary) << bytes;
    try {
      const AdapterFile adapter = Open();
      for (const GgufTensor& tensor : adapter.file.tensors()) ReadAll(adapter.file, tensor);
    } catch (const Error&) {
    }
  }
}

TEST(PeftKeyTest, FitsEndsOfNames) {
  const std::string name = "model.layers.1.self_attn.q_proj";
  for (const char* key : {"q_proj", "self_attn.q_proj", "layers.1.self_attn.q_proj",
                          "model.layers.1.self_attn.q_proj", "^model.layers.1.self_attn.q_proj",
                          R"(self_attn\.q_proj)", "q.proj"}) {
    EXPECT_TRUE(FitsPeftKey(key, name)) << key;
  }
  for (const char* key : {"_proj", "k_proj", "1.q_proj", "^q_proj",
                          "x.model.layers.1.self_attn.q_proj", R"(q\.proj)", "proj"}) {
    EXPECT_FALSE(FitsPeftKey(key, name)) << key;
  }
}

}  // namespace
}  // namespace hearth
