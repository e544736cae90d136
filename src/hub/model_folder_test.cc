#include "hub/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace hearth::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ModelFolderTest : public ::testing::Test {
 protected:
  ModelFolderTest() : folder_(::testing::TempDir() + "models." + std::to_string(getpid())) {
    fs::remove_all(folder_);
  }
  ~ModelFolderTest() override { fs::remove_all(folder_); }

  void Make(const std::string& path) const {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path) << "12345";
  }
  std::vector<std::string> Names(const std::string& name, bool prefers = true) const {
    const auto models = ListModels(folder_);
    std::vector<std::string> names;
    for (const LocalModel* model : FindModels(models, name, prefers))
      names.push_back(model->Name());
    return names;
  }

  const std::string folder_;
};

constexpr char kPartial[] = ".0123456789abcdef.part";

TEST_F(ModelFolderTest, ListsWhatIsThere) {
  EXPECT_THAT(ListModels(folder_), IsEmpty());
  Make("a/m-GGUF/m-Q4_0.gguf");
  Make("a/m-GGUF/m-Q4_0.gguf.sha256");
  Make("a/m-GGUF/sub/m-Q8_0-00001-of-00002.gguf");
  Make("a/m-GGUF/sub/m-Q8_0-00002-of-00002.gguf" + std::string(kPartial));
  Make("mine.gguf");
  Make("b/other.gguf");
  Make(".headers.1/x.gguf");
  Make("c/readme/README.md");
  const auto models = ListModels(folder_);
  ASSERT_THAT(models, SizeIs(4));
  EXPECT_EQ(models[0].Name(), "b/other");
  EXPECT_EQ(models[1].Name(), "mine");
  EXPECT_EQ(models[2].Name(), "a/m-GGUF:Q4_0");
  EXPECT_TRUE(models[2].is_whole());
  EXPECT_EQ(models[2].bytes, 5u);
  EXPECT_EQ(models[3].Name(), "a/m-GGUF:Q8_0");
  EXPECT_FALSE(models[3].is_whole());
  EXPECT_THAT(models[3].partials, SizeIs(1));
}

TEST_F(ModelFolderTest, ALinkInACircleEnds) {
  Make("a/m/m-Q4_0.gguf");
  fs::create_directory_symlink(folder_, folder_ + "/a/m/round");
  EXPECT_FALSE(ListModels(folder_).empty());
}

TEST_F(ModelFolderTest, FindsByShortNames) {
  Make("unsloth/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct-Q4_K_M.gguf");
  Make("unsloth/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct-Q8_0.gguf");
  Make("other/SmolLM3-GGUF/s-Q4_0.gguf");
  Make("mine.gguf");
  const std::string q4 = "unsloth/SmolLM2-135M-Instruct-GGUF:Q4_K_M";
  const std::string q8 = "unsloth/SmolLM2-135M-Instruct-GGUF:Q8_0";
  EXPECT_THAT(Names("unsloth/SmolLM2-135M-Instruct-GGUF:Q8_0"), ElementsAre(q8));
  EXPECT_THAT(Names("unsloth/smollm2-135m-instruct-gguf"), ElementsAre(q4));
  EXPECT_THAT(Names("unsloth/SmolLM2-135M-Instruct-GGUF", false), ElementsAre(q4, q8));
  EXPECT_THAT(Names("smollm2"), ElementsAre(q4));
  EXPECT_THAT(Names("smollm2:q8_0"), ElementsAre(q8));
  EXPECT_THAT(Names("SmolLM2-135M-Instruct"), ElementsAre(q4));
  EXPECT_THAT(Names("SmolLM2-135M-Instruct-Q8_0"), ElementsAre(q8));
  EXPECT_THAT(Names("smollm3"), ElementsAre("other/SmolLM3-GGUF:Q4_0"));
  EXPECT_THAT(Names("MINE"), ElementsAre("mine"));
  for (const char* name :
       {"smol", "smollm", "nobody/SmolLM3-GGUF", "smollm2:Q2_K", "../mine", ""}) {
    EXPECT_THAT(Names(name), IsEmpty()) << name;
  }
}

TEST_F(ModelFolderTest, OwnersWithTheSameModelAreToldApart) {
  Make("a/m-GGUF/m-Q4_0.gguf");
  Make("b/m-GGUF/m-Q4_0.gguf");
  EXPECT_THAT(Names("m"), ElementsAre("a/m-GGUF:Q4_0", "b/m-GGUF:Q4_0"));
  EXPECT_THAT(Names("b/m-GGUF"), ElementsAre("b/m-GGUF:Q4_0"));
}

TEST_F(ModelFolderTest, RemovesAllOfAModelAndNothingElse) {
  Make("a/m/sub/m-Q8_0-00001-of-00002.gguf");
  Make("a/m/sub/m-Q8_0-00001-of-00002.gguf.sha256");
  Make("a/m/sub/m-Q8_0-00002-of-00002.gguf" + std::string(kPartial));
  Make("a/other/o-Q4_0.gguf");
  Make("a/other/o-Q4_0.gguf" + std::string(kPartial));
  auto models = ListModels(folder_);
  ASSERT_THAT(models, SizeIs(2));
  RemoveModel(folder_ + "/", models[0]);
  EXPECT_FALSE(fs::exists(folder_ + "/a/m"));
  EXPECT_TRUE(fs::exists(folder_ + "/a/other/o-Q4_0.gguf"));
  RemoveModel(folder_, models[1]);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace hearth::hub
