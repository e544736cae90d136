// Tokenizers on hostile text and hostile vocabularies.
//
// The first byte chooses: a fixed vocabulary of either kind with the rest as text, whose bytes
// must come back (in NFC where the tokenizer normalizes); or a GGUF parsed from the rest, whose
// tokenizer must be refused with hearth::Error or work.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "storage/block_reader.h"
#include "text/chat/chat_format.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/test_vocabularies.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using hearth::TokenId;
using hearth::Tokenizer;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Every id in range, every byte accounted for by the stream decoder.
void CheckIds(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  hearth::StreamDecoder decoder(tokenizer);
  for (const TokenId id : ids) {
    Require(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size());
    decoder.Push(id);
  }
  decoder.Finish();
}

// SentencePiece's space mark is a space to it; all else comes back.
std::string SpmExpected(std::string text) {
  const std::string mark = hearth::kTestSpaceMark;
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at) {
    text.replace(at, mark.size(), " ");
  }
  return text;
}

void FuzzText(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.Encode(text);
  CheckIds(tokenizer, ids);
  for (const TokenId id : ids) Require(tokenizer.type(id) != hearth::TokenType::kControl);
  const std::string decoded = tokenizer.Decode(ids);
  if (tokenizer.kind() == "gpt2") {
    Require(decoded == (tokenizer.normalizes() ? hearth::ToNfc(text) : std::string(text)));
  } else {
    const std::string expected = SpmExpected(std::string(text));
    Require(decoded == expected || decoded == " " + expected);
  }
  CheckIds(tokenizer, tokenizer.Encode(text, {/*parse_special=*/true}));
  const size_t half = text.size() / 2;
  CheckIds(tokenizer,
           tokenizer.EncodeSegments({{text.substr(0, half), true}, {text.substr(half)}}));
  hearth::DetectChatFormat(text);
}

// Built once: one of SentencePiece's kind, and one per pre-tokenizer.
std::vector<std::unique_ptr<Tokenizer>> MakeFixed() {
  std::vector<std::unique_ptr<Tokenizer>> fixed;
  fixed.push_back(Tokenizer::FromGguf(hearth::SmallSpmVocabulary().Spm()));
  for (const hearth::PreTokenizer& pre_tokenizer : hearth::PreTokenizers()) {
    const std::string name(pre_tokenizer.name);
    fixed.push_back(Tokenizer::FromGguf(hearth::SmallBpeVocabulary().Bpe(name)));
  }
  return fixed;
}

void FuzzVocabulary(std::string_view bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  std::vector<std::unique_ptr<hearth::BlockReader>> parts;
  parts.push_back(
      hearth::MakeMemoryReader("fuzz", std::vector<std::byte>(begin, begin + bytes.size())));
  try {
    const hearth::GgufFile file = hearth::GgufFile::FromReaders(std::move(parts));
    const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
    // The file's own bytes hold the texts of its tokens.
    for (const bool parse_special : {false, true}) {
      CheckIds(*tokenizer, tokenizer->Encode(bytes, {parse_special}));
      CheckIds(*tokenizer, tokenizer->Encode("Hello \xC3\xA9 12\n", {parse_special}));
    }
    for (size_t i = 0; i < tokenizer->vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const TokenId found = tokenizer->FindToken(tokenizer->VocabularyText(id));
      Require(found >= 0 && found <= id);
      tokenizer->IsEndOfGeneration(id);
    }
  } catch (const hearth::Error&) {
    // Refused.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Tokenizer>> fixed = MakeFixed();
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] < fixed.size()) {
    FuzzText(*fixed[data[0]], rest);
  } else {
    FuzzVocabulary(rest);
  }
  return 0;
}
