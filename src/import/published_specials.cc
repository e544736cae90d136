#include "import/published_specials.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/vocabulary.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr char kEosKey[] = "tokenizer.ggml.eos_token_id";
constexpr char kEosListKey[] = "tokenizer.ggml.eos_token_ids";

class SpecialSetter {
 public:
  SpecialSetter(const PublishedTokenFiles& files, GgufMetadata* metadata)
      : files_(files), metadata_(*metadata) {}

  void Set() {
    SetToken("bos", "tokenizer.ggml.bos_token_id");
    SetToken("eos", kEosKey);
    SetToken("pad", "tokenizer.ggml.padding_token_id");
    SetEnds();
    metadata_.SetBool("tokenizer.ggml.add_bos_token", AddsBos());
    SetEmbeddingEnd();
    const std::string chat = ChatTemplate();
    if (!chat.empty()) metadata_.SetString("tokenizer.chat_template", chat);
  }

 private:
  // The text of a token that tokenizer_config.json names, which is a text or an object.
  std::string NamedToken(const std::string& key) const {
    const Json* token = files_.settings.Find(key.c_str());
    if (token == nullptr) return "";
    if (token->is_object()) {
      return PublishedJson(files_.settings.path() + ": " + key, *token).Text("content", "");
    }
    return files_.settings.Text(key.c_str(), "");
  }

  // The ids under a key: a number or a list of them. Others, and negative ones, name no token.
  std::vector<int64_t> Ids(const PublishedJson& file, const std::string& key) const {
    std::vector<int64_t> ids;
    const auto add = [&](const Json& id) {
      if (!id.is_number_unsigned()) return;
      const auto number = id.get<uint64_t>();
      if (number >= files_.tokens.size()) {
        throw Error(ErrorCode::kCorrupt, file.path(), key,
                    fmt::format("below {}, the tokens of the vocabulary", files_.tokens.size()),
                    std::to_string(number));
      }
      ids.push_back(static_cast<int64_t>(number));
    };
    const Json* stated = file.Find(key.c_str());
    if (stated == nullptr) return ids;
    if (stated->is_array()) {
      for (const Json& id : *stated) add(id);
    } else {
      add(*stated);
    }
    return ids;
  }

  void SetToken(const std::string& name, const char* gguf_key) {
    int64_t id = files_.tokens.Find(NamedToken(name + "_token"));
    if (id < 0 && !metadata_.Has(gguf_key)) {
      const std::vector<int64_t> stated = Ids(files_.config, name + "_token_id");
      if (!stated.empty()) id = stated.front();
    }
    if (id >= 0) metadata_.SetUint32(gguf_key, static_cast<uint32_t>(id));
  }

  // What ends an answer besides EOS is said by config.json and, newer, generation_config.json.
  void SetEnds() {
    std::vector<int32_t> ends;
    if (const auto eos = metadata_.FindInt(kEosKey)) ends.push_back(static_cast<int32_t>(*eos));
    for (const PublishedJson* file : {&files_.config, &files_.generation}) {
      for (const int64_t id : Ids(*file, "eos_token_id")) {
        if (std::count(ends.begin(), ends.end(), id) == 0) ends.push_back(static_cast<int32_t>(id));
      }
    }
    if (ends.size() > 1) metadata_.SetInt32s(kEosListKey, ends);
  }

  // Either a text or, where a model has several, objects with a name; empty where there is none.
  std::string ChatTemplate() const {
    const Json* chat = files_.settings.Find("chat_template");
    if (chat == nullptr) return "";
    if (chat->is_string()) return chat->get<std::string>();
    if (!chat->is_array()) {
      throw Error(ErrorCode::kCorrupt, files_.settings.path(), "chat_template", "a text or a list",
                  chat->type_name());
    }
    for (const Json& one : *chat) {
      if (!one.is_object()) continue;
      const PublishedJson named(files_.settings.path() + ": chat_template", one);
      if (named.Text("name", "") == "default") return named.Text("template", "");
    }
    return "";
  }

  // The pieces that tokenizer.json puts together of one text: itself and special tokens. Empty
  // where it says nothing.
  Json TextTemplate() const {
    const Json* post = files_.tokenizer.Find("post_processor");
    if (post == nullptr || !post->is_object()) return Json::array();
    Json processors = post->value("processors", Json());
    if (!processors.is_array()) processors = Json::array();
    processors.push_back(*post);
    for (const Json& processor : processors) {
      if (!processor.is_object() || processor.value("type", Json()) != "TemplateProcessing") {
        continue;
      }
      const Json single = processor.value("single", Json());
      if (single.is_array()) return single;
    }
    return Json::array();
  }

  static bool IsSpecial(const Json& piece) {
    return piece.is_object() && piece.contains("SpecialToken");
  }

  // tokenizer_config.json has the last word. Without tokenizer.json it is SentencePiece's, which
  // begins texts so.
  bool AddsBos() const {
    if (files_.settings.Has("add_bos_token")) return files_.settings.Bool("add_bos_token", false);
    if (files_.tokenizer.json().empty()) return true;
    const Json pieces = TextTemplate();
    return !pieces.empty() && IsSpecial(pieces.front());
  }

  // The special tokens after a text; tokenizer_config.json has the last word on whether there are.
  std::vector<int32_t> AppendedTokens() const {
    const auto stated = metadata_.FindInt(kEosKey);
    const Json pieces = TextTemplate();
    std::vector<int32_t> appended;
    for (auto piece = pieces.rbegin(); piece != pieces.rend() && IsSpecial(*piece); ++piece) {
      const Json& special = (*piece)["SpecialToken"];
      const std::string where = files_.tokenizer.path() + ": post_processor";
      const std::string text =
          special.is_object() ? PublishedJson(where, special).Text("id", "") : "";
      const int64_t id = files_.tokens.Find(text);
      if (id < 0) {
        throw Error(ErrorCode::kCorrupt, files_.tokenizer.path(), "post_processor",
                    "tokens of the vocabulary", Printable(text));
      }
      appended.insert(appended.begin(), static_cast<int32_t>(id));
    }
    if (!files_.settings.Has("add_eos_token")) return appended;
    if (!files_.settings.Bool("add_eos_token", false)) return {};
    if (appended.empty() && stated) appended = {static_cast<int32_t>(*stated)};
    return appended;
  }

  void SetEmbeddingEnd() {
    const std::vector<int32_t> appended = AppendedTokens();
    const bool is_eos = appended.size() == 1 && appended[0] == metadata_.FindInt(kEosKey);
    metadata_.SetBool("tokenizer.ggml.add_eos_token", is_eos);
    if (!appended.empty() && !is_eos) metadata_.SetInt32s(kEmbeddingEndKey, appended);
  }

  const PublishedTokenFiles& files_;
  GgufMetadata& metadata_;
};

}  // namespace

void SetPublishedSpecials(const PublishedTokenFiles& files, GgufMetadata* metadata) {
  SpecialSetter(files, metadata).Set();
}

}  // namespace hearth
