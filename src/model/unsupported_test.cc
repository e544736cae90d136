#include "model/unsupported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/error.h"
#include "format/gguf_writer.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// What is said about a file with this tensor; empty where nothing is.
std::string SaidAbout(const std::string& tensor) {
  const std::string path = ::testing::TempDir() + "hearth_unsupported.gguf";
  GgufMetadata metadata;
  metadata.SetString("general.architecture", "llama");
  GgufWriter writer(path, metadata, {{tensor, DType::kF32, {4}}});
  writer.Append(std::vector<std::byte>(writer.BytesLeftInTensor()));
  writer.Finish();
  const GgufFile file = GgufFile::Open(path);
  std::remove(path.c_str());
  try {
    RefuseUnsupportedTensors(file, {}, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("'" + tensor + "'"));
    return error.what();
  }
  return "";
}

TEST(UnsupportedTest, VariantsAreNamed) {
  struct Case {
    const char* tensor;
    const char* words;
  };
  const Case cases[] = {
      {"blk.0.ffn_gate.0.weight", "before April 2024"},
      {"blk.11.ffn_down.7.weight", "every expert is a tensor of its own"},
      {"blk.7.rope_freqs.weight", "RoPE factors of single layers"},
      {"blk.7.rope_freqs", "RoPE factors of single layers"},
      {"rope_factors_long.weight", "LongRoPE"},
      {"blk.0.post_ffw_norm.weight", "norms after attention or FFN"},
      {"blk.0.ffn_up_shexp.weight", "shared experts"},
      {"blk.0.attn_sinks.weight", "attention sinks"},
      {"cls.output.weight", "ranking model"},
  };
  for (const Case& c : cases) EXPECT_THAT(SaidAbout(c.tensor), HasSubstr(c.words)) << c.tensor;
}

TEST(UnsupportedTest, NothingIsSaidAboutOtherTensors) {
  for (const char* tensor :
       {"blk.0.ffn_gate.weight", "blk.0.ffn_gate_exps.weight", "blk.0.attn_q.bias",
        "rope_freqs.weight", "token_embd.weight", "blk.0.ffn_gate_inp.weight", "blk.", "blk.x",
        "output.weight", "blk.0.attn_rot_embd.weight", "blk.0.ffn_bundle"}) {
    EXPECT_EQ(SaidAbout(tensor), "") << tensor;
  }
}

}  // namespace
}  // namespace hearth
