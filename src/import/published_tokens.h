// The tokens of a published vocabulary, put to their places. Internal to import/.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "import/hugging_face_json.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

class PublishedTokens {
 public:
  // `path`, the file, begins messages. Ids are below `max_tokens`.
  PublishedTokens(std::string path, int64_t max_tokens)
      : path_(std::move(path)), max_tokens_(max_tokens) {}

  // Places that nothing takes stay unused. Throws Error(kCorrupt).
  void Place(const std::string& text, const nlohmann::json& id, TokenType type);
  // One that was added after training: {"content", "special", flags}; "id" is apart. Throws
  // Error(kUnsupported), naming it, for a flag that Hearth does not do.
  void PlaceAdded(const PublishedJson& token, const nlohmann::json& id);

  size_t size() const { return texts.size(); }
  // -1 where there is none.
  int64_t Find(const std::string& text) const;
  Error Corrupt(const std::string& what, const std::string& expected,
                const std::string& found) const;
  const std::string& path() const { return path_; }

  std::vector<std::string> texts;
  std::vector<int32_t> types;  // TokenType

 private:
  std::string path_;
  int64_t max_tokens_;
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace hearth
