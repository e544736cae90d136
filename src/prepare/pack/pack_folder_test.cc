// Packing model folders as their authors publish them.
#include <gtest/gtest.h>

#include "import/test_model_folder.h"
#include "prepare/pack/pack.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

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
