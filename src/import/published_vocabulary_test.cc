// Whole published vocabularies in model folders.
#include <gtest/gtest.h>

#include "format/gguf_view.h"
#include "import/test_model_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

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
           {"normalizer", c.ignore_merges ? Json(nullptr) : Json{{"type", "NFC"}}},
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

}  // namespace
}  // namespace hearth
