#include "import/hugging_face.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "import/hugging_face_config.h"
#include "import/hugging_face_json.h"
#include "import/hugging_face_pooling.h"
#include "import/hugging_face_tensors.h"
#include "import/hugging_face_tokenizer.h"

namespace hearth {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

class FolderReader {
 public:
  explicit FolderReader(std::string folder) : folder_(std::move(folder)) {
    while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  }

  GgufFile Open() {
    const PublishedJson json = ReadJson();
    PublishedConfig config = PublishedConfigReader(json, NameOfFolder()).Read();
    SetPublishedTokenizer(folder_, json, &config.metadata);
    ReadChatTemplate(&config.metadata);
    SetPublishedPooling(folder_, config.family->architecture, &config.metadata);
    PublishedTensors tensors(folder_, config);
    for (const PublishedModule& module : config.family->top)
      tensors.TakeModule(module, "model.", "");
    tensors.AddFloats("rope_freqs.weight", config.rope.all);
    tensors.AddFloats("rope_factors_short.weight", config.rope.short_contexts);
    tensors.AddFloats("rope_factors_long.weight", config.rope.long_contexts);
    for (int64_t layer = 0; layer < config.num_layers; ++layer) tensors.TakeLayer(layer);
    if (!config.tied_embeddings) {
      tensors.TakeModule(Linear("lm_head", "output"), "", "");
    }
    if (config.family->take_rest != nullptr) config.family->take_rest(tensors, &config);
    tensors.RefuseLeftOvers();
    return tensors.MakeFile(config.metadata);
  }

  PublishedConfig ReadConfig() const {
    return PublishedConfigReader(ReadJson(), NameOfFolder()).Read();
  }

 private:
  PublishedJson ReadJson() const {
    PublishedJson json = PublishedJson::Read(Path("config.json"), kMaxConfigBytes);
    const std::string older = Path("quantize_config.json");
    if (!json.Has("quantization_config") && std::filesystem::exists(older)) {
      json = WithOlderQuantization(json, PublishedJson::Read(older, kMaxConfigBytes));
    }
    return TextPartOf(json);
  }
  // AutoGPTQ once wrote it to a file of its own.
  static PublishedJson WithOlderQuantization(const PublishedJson& config,
                                             const PublishedJson& older) {
    nlohmann::json quantization = older.json();
    if (!older.Has("quant_method")) quantization["quant_method"] = "gptq";
    nlohmann::json merged = config.json();
    merged["quantization_config"] = std::move(quantization);
    return {config.path(), std::move(merged)};
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // Of "." as well.
  std::string NameOfFolder() const {
    std::error_code failure;
    const std::filesystem::path whole = std::filesystem::canonical(folder_, failure);
    return (failure ? std::filesystem::path(folder_) : whole).filename();
  }

  // Newer folders have it in a file of its own, which then has the last word.
  void ReadChatTemplate(GgufMetadata* metadata) const {
    const std::string path = Path("chat_template.jinja");
    if (!std::filesystem::exists(path)) return;
    metadata->SetString("tokenizer.chat_template", ReadPublishedText(path, kMaxConfigBytes));
  }

  std::string folder_;
};

}  // namespace

bool IsModelFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path + "/config.json", ignored);
}

std::vector<std::string> WhatIsLeftOut(const std::string& folder) {
  std::vector<std::string> out;
  const FolderReader reader(folder);
  const PublishedConfig config = reader.ReadConfig();
  if (config.has_images) {
    out.push_back("the part that reads images was left out: Hearth reads text only");
  }
  for (std::string& notice : NoticesOfWeights(folder, config)) out.push_back(std::move(notice));
  return out;
}

GgufFile OpenModelFolder(const std::string& folder) { return FolderReader(folder).Open(); }

}  // namespace hearth
