#include "import/hugging_face_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "import/published_specials.h"
#include "import/published_steps.h"
#include "import/published_tokens.h"
#include "import/sentencepiece_model.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/vocabulary.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 22;
constexpr uint64_t kMaxSettingsBytes = uint64_t{16} << 20;
// Tokenizers of 250,000 tokens take some 35 MB.
constexpr uint64_t kMaxTokenizerBytes = uint64_t{128} << 20;

int32_t Number(TokenType type) { return static_cast<int32_t>(type); }

// tokenizer.json.
class TokenizerReader {
 public:
  TokenizerReader(const PublishedJson& tokenizer, int64_t max_tokens, GgufMetadata* metadata)
      : tokenizer_(tokenizer),
        model_(tokenizer.Object("model")),
        metadata_(*metadata),
        tokens_(tokenizer.path(), max_tokens) {}

  PublishedTokens Read() {
    CheckModel();
    const PublishedSteps steps = ReadPublishedSteps(tokenizer_);
    const PublishedJson vocabulary = model_.Object("vocab");
    for (const auto& [text, id] : vocabulary.json().items()) {
      tokens_.Place(text, id, TokenType::kNormal);
    }
    if (tokens_.size() == 0) throw tokens_.Corrupt("model: vocab", "tokens", "none");
    ReadAddedTokens();
    const std::vector<std::string> merges = ReadMerges();
    if (model_.Bool("byte_fallback", false)) {
      SetSentencePiece(merges, steps);
    } else {
      SetByteLevel(merges, steps);
    }
    return std::move(tokens_);
  }

 private:
  void CheckModel() const {
    if (model_.Text("type", "BPE") != "BPE") {
      throw Error(ErrorCode::kUnsupported, model_.path(), "type", "BPE",
                  "'" + Printable(model_.Text("type", "")) + "'");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const std::string text = model_.Text(key, "");
      if (text.empty()) continue;
      throw Error(ErrorCode::kUnsupported, model_.path(), key, "none", "'" + Printable(text) + "'");
    }
  }

  void ReadAddedTokens() {
    const Json* added = tokenizer_.Find("added_tokens");
    if (added == nullptr) return;
    if (!added->is_array()) throw tokens_.Corrupt("added_tokens", "a list", added->type_name());
    for (const Json& token : *added) {
      if (!token.is_object()) throw tokens_.Corrupt("added_tokens", "objects", token.type_name());
      const PublishedJson one(tokenizer_.path() + ": added_tokens", token);
      tokens_.PlaceAdded(one, one.Has("id") ? *one.Find("id") : Json(nullptr));
    }
  }

  // "left right" per merge: newer files have pairs, as pieces may hold spaces.
  std::vector<std::string> ReadMerges() const {
    const Json* merges = model_.Find("merges");
    if (merges == nullptr || !merges->is_array()) {
      throw tokens_.Corrupt("model: merges", "a list", "none");
    }
    std::vector<std::string> out;
    for (const Json& merge : *merges) {
      if (merge.is_string()) {
        out.push_back(merge.get<std::string>());
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        out.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
      } else {
        throw tokens_.Corrupt("model: merges", "pairs of pieces", merge.dump());
      }
    }
    return out;
  }

  // SentencePiece has scores: pieces that are merged first have the highest. Pieces that no merge
  // makes are never looked for but as what a text begins with.
  std::vector<float> Scores(const std::vector<std::string>& merges) {
    std::vector<float> scores(tokens_.size(), 0.0f);
    std::vector<bool> is_merged(tokens_.size(), false);
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      std::string piece = merges[rank];
      const size_t space = piece.find(' ');
      if (space == std::string::npos) {
        throw tokens_.Corrupt("model: merges", "pairs of pieces", piece);
      }
      piece.erase(space, 1);
      const int64_t found = tokens_.Find(piece);
      if (found < 0) throw tokens_.Corrupt("model: merges", "pieces of the vocabulary", piece);
      const auto id = static_cast<size_t>(found);
      if (!is_merged[id]) scores[id] = -static_cast<float>(rank);
      is_merged[id] = true;
    }
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const bool is_normal = tokens_.types[id] == Number(TokenType::kNormal);
      if (is_normal && ByteTokenValue(tokens_.texts[id]) >= 0) {
        tokens_.types[id] = Number(TokenType::kByte);
      } else if (is_normal && !is_merged[id]) {
        scores[id] = -static_cast<float>(merges.size() + id);
      }
    }
    return scores;
  }

  void SetSentencePiece(const std::vector<std::string>& merges, const PublishedSteps& steps) {
    if (steps.byte_level || !steps.patterns.empty()) {
      throw Error(ErrorCode::kUnsupported, tokenizer_.path(), "pre_tokenizer",
                  "Metaspace or none, with byte_fallback", "one that cuts the text");
    }
    if (model_.Bool("ignore_merges", false)) {
      throw Error(ErrorCode::kUnsupported, model_.path(), "ignore_merges",
                  "false, with byte_fallback", "true");
    }
    std::vector<float> scores = Scores(merges);
    const int64_t unknown = tokens_.Find(model_.Text("unk_token", ""));
    if (unknown >= 0) {
      tokens_.types[static_cast<size_t>(unknown)] = Number(TokenType::kUnknown);
      metadata_.SetUint32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
    }
    metadata_.SetString("tokenizer.ggml.model", "llama");
    metadata_.SetString("tokenizer.ggml.pre", "default");
    metadata_.SetFloat32s("tokenizer.ggml.scores", std::move(scores));
    const std::string scheme = steps.metaspace.value_or("never");
    metadata_.SetBool("tokenizer.ggml.add_space_prefix", steps.prepends_space || scheme != "never");
    if (!steps.prepends_space && scheme == "first") metadata_.SetString(kSpacePrefixKey, "first");
    if (!steps.prepends_space && scheme == "always") metadata_.SetString(kSpacePrefixKey, "word");
    if (steps.nfc) metadata_.SetString(kNormalizerKey, "NFC");
  }

  void SetByteLevel(std::vector<std::string> merges, const PublishedSteps& steps) {
    const PreTokenizer& pre_tokenizer = FindPreTokenizer(steps);
    metadata_.SetString("tokenizer.ggml.model", "gpt2");
    metadata_.SetString("tokenizer.ggml.pre", std::string(pre_tokenizer.name));
    metadata_.SetStrings("tokenizer.ggml.merges", std::move(merges));
    if (pre_tokenizer.nfc != steps.nfc) {
      metadata_.SetString(kNormalizerKey, steps.nfc ? "NFC" : "none");
    }
  }

  // The built-in pre-tokenizer that splits as this file says; of several one that normalizes so
  // too.
  const PreTokenizer& FindPreTokenizer(const PublishedSteps& steps) const {
    const bool ignores = model_.Bool("ignore_merges", false);
    const PreTokenizer* found = nullptr;
    for (const PreTokenizer& known : PreTokenizers()) {
      if (known.ignore_merges != ignores ||
          !std::equal(known.patterns.begin(), known.patterns.end(), steps.patterns.begin(),
                      steps.patterns.end())) {
        continue;
      }
      if (found == nullptr || (found->nfc != steps.nfc && known.nfc == steps.nfc)) found = &known;
    }
    if (found != nullptr && steps.byte_level) return *found;
    throw Error(ErrorCode::kUnsupported, tokenizer_.path(), "pre_tokenizer",
                "one that is built in (GPT-2, Llama 3, Qwen2 and others)",
                "'" + Printable(steps.patterns.empty() ? "none" : steps.patterns.front()) + "'");
  }

  const PublishedJson& tokenizer_;
  const PublishedJson model_;
  GgufMetadata& metadata_;
  PublishedTokens tokens_;
};

// tokenizer.model, with the tokens that were added later: those of tokenizer_config.json, and of
// added_tokens.json, which says no more than texts and ids.
PublishedTokens ReadSentencePiece(const std::string& folder, const PublishedJson& settings,
                                  int64_t max_tokens, GgufMetadata* metadata) {
  const std::string path = folder + "/tokenizer.model";
  SentencePieceModel model =
      ParseSentencePieceModel(ReadPublishedText(path, kMaxTokenizerBytes), path);
  PublishedTokens tokens(path, max_tokens);
  for (size_t id = 0; id < model.texts.size(); ++id) {
    tokens.Place(model.texts[id], id, static_cast<TokenType>(model.types[id]));
  }
  const std::string added = folder + "/added_tokens.json";
  if (std::filesystem::exists(added)) {
    const PublishedJson list = PublishedJson::Read(added, kMaxSettingsBytes);
    for (const auto& [text, id] : list.json().items()) {
      if (tokens.Find(text) < 0) tokens.Place(text, id, TokenType::kUserDefined);
    }
  }
  const PublishedJson decoder = settings.Object("added_tokens_decoder");
  for (const auto& [key, token] : decoder.json().items()) {
    uint32_t id = 0;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || !token.is_object()) {
      throw tokens.Corrupt("added_tokens_decoder", "ids and objects", key);
    }
    // What the model itself has keeps its type.
    if (id >= model.texts.size()) tokens.PlaceAdded({decoder.path(), token}, id);
  }
  model.scores.resize(tokens.size(), 0.0f);
  metadata->SetString("tokenizer.ggml.model", "llama");
  metadata->SetString("tokenizer.ggml.pre", "default");
  metadata->SetFloat32s("tokenizer.ggml.scores", std::move(model.scores));
  metadata->SetBool("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
  if (!settings.Bool("legacy", true)) metadata->SetString(kSpacePrefixKey, "first");
  const auto set_id = [&](const char* key, int32_t id) {
    if (id >= 0) metadata->SetUint32(key, static_cast<uint32_t>(id));
  };
  set_id("tokenizer.ggml.unknown_token_id", model.unk_id);
  set_id("tokenizer.ggml.bos_token_id", model.bos_id);
  set_id("tokenizer.ggml.eos_token_id", model.eos_id);
  set_id("tokenizer.ggml.padding_token_id", model.pad_id);
  return tokens;
}

PublishedJson ReadOptional(const std::string& path) {
  if (!std::filesystem::exists(path)) return {path, Json::object()};
  return PublishedJson::Read(path, kMaxSettingsBytes);
}

}  // namespace

void SetPublishedTokenizer(const std::string& folder, const PublishedJson& config,
                           GgufMetadata* metadata) {
  const PublishedJson settings = ReadOptional(folder + "/tokenizer_config.json");
  const PublishedJson generation = ReadOptional(folder + "/generation_config.json");
  // Rows of the embedding, where they are known.
  const int64_t max_tokens = std::min(kMaxTokens, config.Int("vocab_size", kMaxTokens));
  const std::string path = folder + "/tokenizer.json";
  const auto set_rest = [&](const PublishedTokens& tokens, const PublishedJson& tokenizer) {
    metadata->SetStrings("tokenizer.ggml.tokens", tokens.texts);
    metadata->SetInt32s("tokenizer.ggml.token_type", tokens.types);
    SetPublishedSpecials({tokens, tokenizer, settings, config, generation}, metadata);
  };
  if (std::filesystem::exists(path)) {
    const PublishedJson tokenizer = PublishedJson::Read(path, kMaxTokenizerBytes);
    set_rest(TokenizerReader(tokenizer, max_tokens, metadata).Read(), tokenizer);
  } else if (std::filesystem::exists(folder + "/tokenizer.model")) {
    set_rest(ReadSentencePiece(folder, settings, max_tokens, metadata), {path, Json::object()});
  } else {
    throw Error(ErrorCode::kNotFound, folder,
                "there is neither tokenizer.json nor tokenizer.model; other tokenizers cannot be "
                "read");
  }
}

}  // namespace hearth
