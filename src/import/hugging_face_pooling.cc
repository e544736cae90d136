#include "import/hugging_face_pooling.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "import/hugging_face_json.h"

namespace hearth {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 20;

// Ways of pooling, by their key in the settings and their number in GGUF.
struct Pooling {
  const char* key;
  uint32_t number;
};
constexpr Pooling kPoolings[] = {
    {"pooling_mode_mean_tokens", 1}, {"pooling_mode_cls_token", 2}, {"pooling_mode_lasttoken", 3}};
constexpr const char* kOtherPoolings[] = {"pooling_mode_max_tokens",
                                          "pooling_mode_mean_sqrt_len_tokens",
                                          "pooling_mode_weightedmean_tokens"};

uint32_t ReadPoolingNumber(const PublishedJson& settings) {
  const auto refuse = [&](const std::string& found) {
    throw Error(ErrorCode::kUnsupported, settings.path(), "pooling",
                "one of pooling_mode_mean_tokens, pooling_mode_cls_token, pooling_mode_lasttoken",
                found);
  };
  for (const char* key : kOtherPoolings) {
    if (settings.Bool(key, false)) refuse(key);
  }
  uint32_t number = 0;
  for (const Pooling& pooling : kPoolings) {
    if (!settings.Bool(pooling.key, false)) continue;
    if (number != 0) refuse("two");
    number = pooling.number;
  }
  if (number == 0) refuse("none");
  return number;
}

}  // namespace

void SetPublishedPooling(const std::string& folder, const std::string& architecture,
                         GgufMetadata* metadata) {
  const std::string path = folder + "/modules.json";
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return;
  const nlohmann::json modules = ReadPublishedJson(path, kMaxBytes);
  if (!modules.is_array()) {
    throw Error(ErrorCode::kCorrupt, path, "content", "a list", modules.type_name());
  }
  for (const nlohmann::json& entry : modules) {
    if (!entry.is_object()) {
      throw Error(ErrorCode::kCorrupt, path, "content", "a list of objects", entry.type_name());
    }
    const PublishedJson module(path, entry);
    const std::string type = module.Text("type", "");
    if (type.ends_with(".Transformer") || type.ends_with(".Normalize")) continue;
    if (!type.ends_with(".Pooling")) {
      throw Error(ErrorCode::kUnsupported, path, "type", "Transformer, Pooling or Normalize",
                  "'" + Printable(type) + "'");
    }
    const std::string name = module.Text("path", "");
    if (name.empty() || name.find('/') != std::string::npos || name == "..") {
      throw Error(ErrorCode::kCorrupt, path, "path", "a folder beside it",
                  "'" + Printable(name) + "'");
    }
    const PublishedJson settings =
        PublishedJson::Read(folder + "/" + name + "/config.json", kMaxBytes);
    metadata->SetUint32(architecture + ".pooling_type", ReadPoolingNumber(settings));
  }
}

}  // namespace hearth
