#include "prepare/hugging_face_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/pretokenizers.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxTokens = 1 << 22;
// How published patterns write what the built-in ones spell out.
constexpr std::string_view kPublishedContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr std::string_view kContractions =
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";

class TokenizerReader {
 public:
  TokenizerReader(const PublishedJson& tokenizer, const PublishedJson& settings,
                  const PublishedJson& config, GgufMetadata* metadata)
      : tokenizer_(tokenizer),
        settings_(settings),
        config_(config),
        metadata_(*metadata),
        max_tokens_(std::min(kMaxTokens, config.Int("vocab_size", kMaxTokens))) {}

  void Read() {
    const PublishedJson model = tokenizer_.Object("model");
    if (model.Text("type", "BPE") != "BPE") {
      throw Error(ErrorCode::kUnsupported, model.path(), "type", "BPE",
                  "'" + Printable(model.Text("type", "")) + "'");
    }
    ReadVocabulary(model);
    const bool has_bytes = model.Bool("byte_fallback", false);
    ReadAddedTokens();
    const std::vector<std::string> merges = ReadMerges(model);
    if (has_bytes) {
      SetSentencePiece(merges);
    } else {
      metadata_.SetString("tokenizer.ggml.model", "gpt2");
      metadata_.SetString("tokenizer.ggml.pre", FindPreTokenizer());
      metadata_.SetStrings("tokenizer.ggml.merges", merges);
    }
    metadata_.SetStrings("tokenizer.ggml.tokens", texts_);
    metadata_.SetInt32s("tokenizer.ggml.token_type", types_);
    SetSpecialTokens();
  }

 private:
  Error Corrupt(const std::string& what, const std::string& expected,
                const std::string& found) const {
    return Error(ErrorCode::kCorrupt, tokenizer_.path(), what, expected, Printable(found));
  }

  // Puts a token to its place; places that nothing takes stay unused.
  void Place(const std::string& text, const Json& id, TokenType type) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(max_tokens_)) {
      throw Corrupt("id of token '" + Printable(text) + "'",
                    fmt::format("a number below {}", max_tokens_), id.dump());
    }
    const auto at = id.get<size_t>();
    while (texts_.size() <= at) {
      texts_.push_back(fmt::format("[unused {}]", texts_.size()));
      types_.push_back(static_cast<int32_t>(TokenType::kUnused));
    }
    texts_[at] = text;
    types_[at] = static_cast<int32_t>(type);
    ids_[text] = static_cast<int32_t>(at);
  }

  void ReadVocabulary(const PublishedJson& model) {
    const PublishedJson vocabulary = model.Object("vocab");
    for (const auto& [text, id] : vocabulary.json().items()) {
      Place(text, id, TokenType::kNormal);
    }
    if (texts_.empty()) throw Corrupt("model: vocab", "tokens", "none");
  }

  void ReadAddedTokens() {
    const Json* added = tokenizer_.Find("added_tokens");
    if (added == nullptr) return;
    if (!added->is_array()) throw Corrupt("added_tokens", "a list", added->type_name());
    for (const Json& token : *added) {
      if (!token.is_object()) throw Corrupt("added_tokens", "objects", token.type_name());
      const PublishedJson one(tokenizer_.path() + ": added_tokens", token);
      const std::string text = one.Text("content", "");
      const bool is_special = one.Bool("special", false);
      Place(text, one.Has("id") ? *one.Find("id") : Json(nullptr),
            is_special ? TokenType::kControl : TokenType::kUserDefined);
    }
  }

  // "left right" per merge: newer files have pairs, as pieces may hold spaces.
  std::vector<std::string> ReadMerges(const PublishedJson& model) const {
    const Json* merges = model.Find("merges");
    if (merges == nullptr || !merges->is_array()) throw Corrupt("model: merges", "a list", "none");
    std::vector<std::string> out;
    for (const Json& merge : *merges) {
      if (merge.is_string()) {
        out.push_back(merge.get<std::string>());
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        out.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
      } else {
        throw Corrupt("model: merges", "pairs of pieces", merge.dump());
      }
    }
    return out;
  }

  // SentencePiece has scores: pieces that are merged first have the highest. Pieces that no merge
  // makes are never looked for but as what a text begins with.
  void SetSentencePiece(const std::vector<std::string>& merges) {
    std::vector<float> scores(texts_.size(), 0.0f);
    std::vector<bool> is_merged(texts_.size(), false);
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      std::string piece = merges[rank];
      const size_t space = piece.find(' ');
      if (space == std::string::npos) throw Corrupt("model: merges", "pairs of pieces", piece);
      piece.erase(space, 1);
      const auto found = ids_.find(piece);
      if (found == ids_.end()) throw Corrupt("model: merges", "pieces of the vocabulary", piece);
      const auto id = static_cast<size_t>(found->second);
      if (!is_merged[id]) scores[id] = -static_cast<float>(rank);
      is_merged[id] = true;
    }
    for (size_t id = 0; id < texts_.size(); ++id) {
      const bool is_normal = types_[id] == static_cast<int32_t>(TokenType::kNormal);
      if (is_normal && ByteTokenValue(texts_[id]) >= 0) {
        types_[id] = static_cast<int32_t>(TokenType::kByte);
      } else if (is_normal && !is_merged[id]) {
        scores[id] = -static_cast<float>(merges.size() + id);
      }
    }
    const std::string unknown = tokenizer_.Object("model").Text("unk_token", "");
    if (const auto found = ids_.find(unknown); found != ids_.end()) {
      types_[static_cast<size_t>(found->second)] = static_cast<int32_t>(TokenType::kUnknown);
      metadata_.SetUint32("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(found->second));
    }
    metadata_.SetString("tokenizer.ggml.model", "llama");
    metadata_.SetString("tokenizer.ggml.pre", "default");
    metadata_.SetFloat32s("tokenizer.ggml.scores", std::move(scores));
    metadata_.SetBool("tokenizer.ggml.add_space_prefix", PrependsSpace());
  }

  bool PrependsSpace() const {
    const Json* normalizer = tokenizer_.Find("normalizer");
    const Json* pre = tokenizer_.Find("pre_tokenizer");
    if (normalizer != nullptr && normalizer->dump().find("\"Prepend\"") != std::string::npos) {
      return true;
    }
    if (pre == nullptr || pre->dump().find("\"Metaspace\"") == std::string::npos) return false;
    return pre->dump().find("\"prepend_scheme\":\"never\"") == std::string::npos &&
           pre->dump().find("\"add_prefix_space\":false") == std::string::npos;
  }

  // The built-in pre-tokenizer that splits as this file says.
  std::string FindPreTokenizer() const {
    std::vector<std::string> patterns;
    const Json* pre = tokenizer_.Find("pre_tokenizer");
    if (pre != nullptr) CollectPatterns(*pre, 0, &patterns);
    for (const PreTokenizer& known : PreTokenizers()) {
      if (std::equal(known.patterns.begin(), known.patterns.end(), patterns.begin(),
                     patterns.end())) {
        const bool ignores = tokenizer_.Object("model").Bool("ignore_merges", false);
        if (ignores == known.ignore_merges) return std::string(known.name);
      }
    }
    throw Error(ErrorCode::kUnsupported, tokenizer_.path(), "pre_tokenizer",
                "one that is built in (GPT-2, Llama 3, Qwen2 and others)",
                "'" + Printable(patterns.empty() ? "none" : patterns.front()) + "'");
  }

  void CollectPatterns(const Json& node, int depth, std::vector<std::string>* out) const {
    constexpr int kMaxDepth = 4;
    if (!node.is_object() || depth > kMaxDepth) return;
    const PublishedJson one(tokenizer_.path() + ": pre_tokenizer", node);
    const std::string type = one.Text("type", "");
    if (type == "Sequence") {
      const Json* list = one.Find("pretokenizers");
      for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
        CollectPatterns((*list)[i], depth + 1, out);
      }
    } else if (type == "Split") {
      std::string pattern = one.Object("pattern").Text("Regex", "");
      const size_t at = pattern.find(kPublishedContractions);
      if (at != std::string::npos) {
        pattern.replace(at, kPublishedContractions.size(), kContractions);
      }
      out->push_back(pattern);
    } else if (type == "ByteLevel") {
      if (one.Bool("add_prefix_space", false)) out->push_back("a space before the text");
      // GPT-2's pattern, which ByteLevel knows by heart.
      if (one.Bool("use_regex", true)) {
        out->push_back(std::string(FindPreTokenizerOrNull("gpt-2")->patterns.front()));
      }
    } else {
      out->push_back(type);
    }
  }

  // The text of a token that tokenizer_config.json names, which is a text or an object.
  std::string NamedToken(const char* key) const {
    const Json* token = settings_.Find(key);
    if (token == nullptr) return "";
    if (token->is_object()) {
      return PublishedJson(settings_.path() + ": " + key, *token).Text("content", "");
    }
    return settings_.Text(key, "");
  }

  void SetSpecialToken(const char* name, const char* gguf_key) {
    const std::string text = NamedToken((std::string(name) + "_token").c_str());
    int64_t id = -1;
    if (const auto found = ids_.find(text); found != ids_.end()) id = found->second;
    const std::string id_key = std::string(name) + "_token_id";
    const Json* stated = config_.Find(id_key.c_str());
    if (id < 0 && stated != nullptr) {
      const Json& first = stated->is_array() && !stated->empty() ? stated->front() : *stated;
      if (first.is_number_unsigned()) id = first.get<int64_t>();
    }
    if (id < 0) return;
    if (id >= static_cast<int64_t>(texts_.size())) {
      throw Corrupt(id_key, fmt::format("below {}", texts_.size()), std::to_string(id));
    }
    metadata_.SetUint32(gguf_key, static_cast<uint32_t>(id));
  }

  void SetSpecialTokens() {
    SetSpecialToken("bos", "tokenizer.ggml.bos_token_id");
    SetSpecialToken("eos", "tokenizer.ggml.eos_token_id");
    SetSpecialToken("pad", "tokenizer.ggml.padding_token_id");
    metadata_.SetBool("tokenizer.ggml.add_bos_token", AddsBos());
    metadata_.SetBool("tokenizer.ggml.add_eos_token", false);
    const std::string chat = ChatTemplate();
    if (!chat.empty()) metadata_.SetString("tokenizer.chat_template", chat);
  }

  // Either a text or, where a model has several, objects with a name; empty where there is none.
  std::string ChatTemplate() const {
    const Json* chat = settings_.Find("chat_template");
    if (chat == nullptr) return "";
    if (chat->is_string()) return chat->get<std::string>();
    if (!chat->is_array()) {
      throw Error(ErrorCode::kCorrupt, settings_.path(), "chat_template", "a text or a list",
                  chat->type_name());
    }
    for (const Json& one : *chat) {
      if (!one.is_object()) continue;
      const PublishedJson named(settings_.path() + ": chat_template", one);
      if (named.Text("name", "") == "default") return named.Text("template", "");
    }
    return "";
  }

  // As the template says that is put around a text; tokenizer_config.json has the last word.
  bool AddsBos() const {
    if (settings_.Has("add_bos_token")) return settings_.Bool("add_bos_token", false);
    const Json* post = tokenizer_.Find("post_processor");
    if (post == nullptr || !post->is_object()) return false;
    const auto adds = [](const Json& processor) {
      if (!processor.is_object() || processor.value("type", Json()) != "TemplateProcessing") {
        return false;
      }
      const Json single = processor.value("single", Json());
      return single.is_array() && !single.empty() && single.front().is_object() &&
             single.front().contains("SpecialToken");
    };
    if (adds(*post)) return true;
    const Json parts = post->value("processors", Json());
    return parts.is_array() && std::any_of(parts.begin(), parts.end(), adds);
  }

  const PublishedJson& tokenizer_;
  const PublishedJson& settings_;
  const PublishedJson& config_;
  GgufMetadata& metadata_;
  const int64_t max_tokens_;  // rows of the embedding, where they are known
  std::vector<std::string> texts_;
  std::vector<int32_t> types_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace

void SetPublishedTokenizer(const PublishedJson& tokenizer, const PublishedJson& settings,
                           const PublishedJson& config, GgufMetadata* metadata) {
  TokenizerReader(tokenizer, settings, config, metadata).Read();
}

}  // namespace hearth
