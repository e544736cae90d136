#include "prepare/import/hugging_face.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/gguf_view.h"
#include "prepare/import/hugging_face_config.h"
#include "prepare/import/hugging_face_json.h"
#include "prepare/import/hugging_face_pooling.h"
#include "prepare/import/hugging_face_tokenizer.h"
#include "prepare/import/hugging_face_weights.h"

namespace hearth {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

struct Name {
  const char* published;
  const char* gguf;
};
// Of a layer, with ".weight" and ".bias".
constexpr Name kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"}};
constexpr Name kDenseNames[] = {
    {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};
constexpr const char* kExpertNames[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};

class FolderReader {
 public:
  explicit FolderReader(std::string folder) : folder_(std::move(folder)) {
    while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  }

  GgufFile Open() {
    const PublishedJson json = PublishedJson::Read(Path("config.json"), kMaxConfigBytes);
    config_ = ReadPublishedConfig(json, NameOfFolder());
    SetPublishedTokenizer(folder_, json, &config_.metadata);
    ReadChatTemplate();
    SetPublishedPooling(folder_, config_.family->architecture, &config_.metadata);
    weights_.emplace(folder_);
    sources_ = weights_->TakeSources();
    Take("model.embed_tokens.weight", "token_embd.weight");
    if (!config_.rope_factors.empty()) AddRopeFactors();
    for (int64_t l = 0; l < config_.num_layers; ++l) TakeLayer(l);
    Take("model.norm.weight", "output_norm.weight");
    if (!config_.tied_embeddings) Take("lm_head.weight", "output.weight");
    RefuseLeftOvers();
    return MakeGgufView(folder_, config_.metadata, tensors_, std::move(sources_));
  }

 private:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // Of "." as well.
  std::string NameOfFolder() const {
    std::error_code failure;
    const std::filesystem::path whole = std::filesystem::canonical(folder_, failure);
    return (failure ? std::filesystem::path(folder_) : whole).filename();
  }

  // Newer folders have it in a file of its own, which then has the last word.
  void ReadChatTemplate() {
    const std::string path = Path("chat_template.jinja");
    if (!std::filesystem::exists(path)) return;
    config_.metadata.SetString("tokenizer.chat_template", ReadPublishedText(path, kMaxConfigBytes));
  }

  void TakeLayer(int64_t layer) {
    const std::string from = fmt::format("model.layers.{}.", layer);
    const std::string to = fmt::format("blk.{}.", layer);
    for (const Name& name : kLayerNames) TakeModule(from + name.published, to + name.gguf);
    if (config_.num_experts == 0) {
      for (const Name& name : kDenseNames) TakeModule(from + name.published, to + name.gguf);
      return;
    }
    const PublishedFamily& family = *config_.family;
    Take(from + family.router + ".weight", to + "ffn_gate_inp.weight");
    for (int part = 0; part < 3; ++part) {
      TakeExperts(from + family.experts, family.expert_parts[part],
                  to + kExpertNames[part] + ".weight");
    }
  }

  // Weights, which must be there but for norms that only some families have, and biases that are.
  void TakeModule(const std::string& published, const std::string& gguf) {
    const bool is_optional = gguf.ends_with("_q_norm") || gguf.ends_with("_k_norm");
    if (!is_optional || weights_->Has(published + ".weight")) {
      Take(published + ".weight", gguf + ".weight");
    }
    if (weights_->Has(published + ".bias")) Take(published + ".bias", gguf + ".bias");
  }

  void Take(const std::string& published, const std::string& gguf) {
    const PublishedTensor found = weights_->Take(published);
    const SafetensorsTensor& tensor = found.tensor;
    GgufViewTensor view;
    view.decl.name = gguf;
    view.decl.dtype = tensor.dtype;
    view.decl.ne.assign(tensor.shape.rbegin(), tensor.shape.rend());
    SplicedRange range{.source = found.source, .begin = tensor.offset, .bytes = tensor.bytes};
    if (config_.family->interleaves_heads) Interleave(published, tensor, &range);
    view.ranges.push_back(range);
    tensors_.push_back(std::move(view));
  }

  void Interleave(const std::string& published, const SafetensorsTensor& tensor,
                  SplicedRange* range) const {
    const bool is_query = published.find(".self_attn.q_proj.") != std::string::npos;
    const bool is_key = published.find(".self_attn.k_proj.") != std::string::npos;
    if (!is_query && !is_key) return;
    const int64_t heads = is_query ? config_.num_heads : config_.num_kv_heads;
    const uint64_t rows = tensor.shape.front();
    const auto head_dim = static_cast<uint64_t>(config_.head_dim);
    if (head_dim % 2 != 0 || rows != static_cast<uint64_t>(heads) * head_dim) {
      throw Error(ErrorCode::kCorrupt, folder_, "rows of " + published,
                  fmt::format("{} heads of {}", heads, head_dim), std::to_string(rows));
    }
    range->row_bytes = tensor.bytes / rows;
    range->group_rows = head_dim;
  }

  // The matrices of all experts as one tensor.
  void TakeExperts(const std::string& experts, const std::string& part, const std::string& gguf) {
    GgufViewTensor view;
    view.decl.name = gguf;
    for (int64_t e = 0; e < config_.num_experts; ++e) {
      const std::string published = fmt::format("{}.{}.{}.weight", experts, e, part);
      const PublishedTensor found = weights_->Take(published);
      const SafetensorsTensor& tensor = found.tensor;
      std::vector<uint64_t> ne(tensor.shape.rbegin(), tensor.shape.rend());
      ne.push_back(static_cast<uint64_t>(config_.num_experts));
      if (e == 0) {
        view.decl.dtype = tensor.dtype;
        view.decl.ne = ne;
      }
      if (view.decl.ne != ne || view.decl.dtype != tensor.dtype) {
        throw Error(ErrorCode::kCorrupt, folder_, "type and shape of " + published,
                    "those of expert 0", "others");
      }
      view.ranges.push_back(
          {.source = found.source, .begin = tensor.offset, .bytes = tensor.bytes});
    }
    tensors_.push_back(std::move(view));
  }

  void AddRopeFactors() {
    std::vector<std::byte> bytes(config_.rope_factors.size() * sizeof(float));
    std::memcpy(bytes.data(), config_.rope_factors.data(), bytes.size());
    const uint64_t size = bytes.size();
    sources_.push_back(MakeMemoryReader("rope_freqs.weight", std::move(bytes)));
    GgufViewTensor view;
    view.decl.name = "rope_freqs.weight";
    view.decl.ne = {config_.rope_factors.size()};
    view.ranges.push_back({.source = sources_.size() - 1, .bytes = size});
    tensors_.push_back(std::move(view));
  }

  // A tensor that is not used would be left out of the computation silently.
  void RefuseLeftOvers() const {
    for (const auto& [name, found] : weights_->left()) {
      const bool is_derived = name.ends_with(".rotary_emb.inv_freq");
      const bool is_tied = config_.tied_embeddings && name == "lm_head.weight";
      if (is_derived || is_tied) continue;
      throw Error(ErrorCode::kUnsupported, folder_,
                  fmt::format("tensor '{}' is not part of a '{}' model as Hearth knows it",
                              Printable(found.tensor.name), config_.family->model_type));
    }
  }

  std::string folder_;
  PublishedConfig config_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::optional<PublishedWeights> weights_;
  std::vector<GgufViewTensor> tensors_;
};

}  // namespace

bool IsModelFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path + "/config.json", ignored);
}

GgufFile OpenModelFolder(const std::string& folder) { return FolderReader(folder).Open(); }

}  // namespace hearth
