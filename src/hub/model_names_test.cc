#include "hub/model_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "hub/digest.h"

namespace hearth::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(ModelNameTest, ReadsNamesAndAddresses) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"unsloth/SmolLM2-GGUF", "unsloth/SmolLM2-GGUF"},
      {"a/b:Q4_K_M", "a/b:Q4_K_M"},
      {"a/b:sub/file.gguf", "a/b:sub/file.gguf"},
      {"hf.co/a/b:q8_0", "a/b:q8_0"},
      {"https://huggingface.co/a/b", "a/b"},
      {"https://huggingface.co/a/b/", "a/b"},
      {"https://huggingface.co/a/b/tree/main", "a/b"},
      {"https://huggingface.co/a/b/blob/main/x-Q4_0.gguf", "a/b:x-Q4_0.gguf"},
      {"https://huggingface.co/a/b/resolve/main/s/x.gguf?download=true", "a/b:s/x.gguf"},
  };
  for (const auto& [text, name] : cases) {
    const auto parsed = ParseModelName(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->Text(), name) << text;
  }
}

TEST(ModelNameTest, OtherTextsAreNoNames) {
  for (const char* text :
       {"", "a", "/a/b", "a/", "a/b/c", "../b", "a/..", "./b", "a/b:", "models/m.gguf", "a b/c",
        "a/b\n", "a/b..c", "-a/b", "a/.b", "https://example.org/a/b", "file:///etc/passwd"}) {
    EXPECT_FALSE(ParseModelName(text)) << text;
  }
  EXPECT_FALSE(ParseModelName("a/" + std::string(97, 'b')));
}

TEST(ModelNameTest, FindsTheQuantization) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"SmolLM2-135M-Instruct-Q4_K_M.gguf", "Q4_K_M"},
      {"model.q4_0.gguf", "Q4_0"},
      {"model_q5_1.gguf", "Q5_1"},
      {"Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
      {"m-IQ4_XS-00002-of-00003.gguf", "IQ4_XS"},
      {"BF16/m-00001-of-00002.gguf", "BF16"},
      {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
      {"m-TQ1_0.gguf", "TQ1_0"},
      {"m-Q8.gguf", "Q8"},
      {"m-F16.gguf", "F16"},
      {"Qwen2.gguf", ""},
      {"Q-Tuner.gguf", ""},
      {"stories.gguf", ""},
      {"F16x.gguf", ""},
  };
  for (const auto& [path, quant] : cases) EXPECT_EQ(QuantOf(path), quant) << path;
}

TEST(ModelNameTest, SafePathsStayInTheirFolder) {
  for (const char* path : {"a.gguf", "a/b.gguf", "a b.gguf", "..a", "a../b", "\xc3\xa9.gguf"}) {
    EXPECT_TRUE(IsSafePath(path)) << path;
  }
  for (const char* path : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\nb", "a\x7f"}) {
    EXPECT_FALSE(IsSafePath(path)) << path;
  }
  EXPECT_FALSE(IsSafePath(std::string("a\0b", 3)));
  EXPECT_FALSE(IsSafePath(std::string(201, 'a')));
}

TEST(ModelNameTest, PartsAreOneModel) {
  const auto models =
      GroupModelFiles({"m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf", "README.md",
                       "mmproj-m-F16.gguf", "m-Q4_0.gguf", "x-00003-of-00002.gguf"});
  ASSERT_THAT(models, SizeIs(4));
  EXPECT_THAT(models[0].paths, ElementsAre("m-Q4_0.gguf"));
  EXPECT_THAT(models[1].paths,
              ElementsAre("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"));
  EXPECT_EQ(models[1].label, "Q8_0");
  EXPECT_EQ(models[1].num_parts, 2u);
  EXPECT_TRUE(models[2].is_helper);
  EXPECT_EQ(models[3].num_parts, 1u);  // a number that cannot be one of a part
}

std::string Chosen(const std::vector<std::string>& paths, const std::string& choice) {
  return ChooseModel(GroupModelFiles(paths), {"a/b", choice}).paths.front();
}

void ExpectNoChoice(const std::vector<std::string>& paths, const std::string& choice,
                    ErrorCode code, const std::string& words) {
  try {
    ADD_FAILURE() << Chosen(paths, choice);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(ModelNameTest, ChoosesWhatIsMeant) {
  const std::vector<std::string> usual = {"m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf",
                                          "mmproj-F16.gguf"};
  EXPECT_EQ(Chosen(usual, ""), "m-Q4_K_M.gguf");
  EXPECT_EQ(Chosen(usual, "q8_0"), "m-Q8_0.gguf");
  EXPECT_EQ(Chosen(usual, "m-Q2_K.gguf"), "m-Q2_K.gguf");
  EXPECT_EQ(Chosen(usual, "mmproj-F16.gguf"), "mmproj-F16.gguf");
  EXPECT_EQ(Chosen({"any.gguf"}, ""), "any.gguf");
  EXPECT_EQ(Chosen({"m-Q2_K.gguf", "m-F16.gguf"}, ""), "m-F16.gguf");
  EXPECT_EQ(Chosen({"s/m-Q2_K.gguf", "t/m-Q2_K.gguf"}, "t/m-Q2_K.gguf"), "t/m-Q2_K.gguf");
}

TEST(ModelNameTest, SaysWhatThereIsWhereNothingIsMeant) {
  ExpectNoChoice({"m-Q2_K.gguf", "m-Q8_0.gguf"}, "Q4_0", ErrorCode::kNotFound,
                 "a/b: it holds no 'Q4_0'; there is Q2_K, Q8_0");
  ExpectNoChoice({"m-Q2_K.gguf", "m-Q3_K_L.gguf"}, "", ErrorCode::kInvalidArgument,
                 "it may be one of Q2_K, Q3_K_L: say which, as in a/b:Q2_K");
  ExpectNoChoice({"x-Q4_K_M.gguf", "y-Q4_K_M.gguf"}, "", ErrorCode::kInvalidArgument,
                 "x-Q4_K_M.gguf, y-Q4_K_M.gguf");
  ExpectNoChoice({"README.md", "mmproj-F16.gguf"}, "", ErrorCode::kNotFound, "no GGUF file");
}

TEST(DigestTest, MatchesPublishedHashes) {
  const std::string abc = "abc";
  FileDigest sha256(DigestKind::kSha256, abc.size());  // FIPS 180-2, B.1
  sha256.Update(std::as_bytes(std::span(abc)));
  EXPECT_EQ(sha256.Finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string content = "hello world\n";
  FileDigest git(DigestKind::kGitSha1, content.size());  // `git hash-object`
  git.Update(std::as_bytes(std::span(content)));
  EXPECT_EQ(git.Finish(), "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
}

}  // namespace
}  // namespace hearth::hub
