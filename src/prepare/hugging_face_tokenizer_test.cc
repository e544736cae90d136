// Vocabularies of model folders: whatever text comes, the tokens are those of the GGUF model.
#include <gtest/gtest.h>

#include "format/gguf_view.h"
#include "prepare/test_model_folder.h"
#include "text/tokenizer.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

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

}  // namespace
}  // namespace hearth
