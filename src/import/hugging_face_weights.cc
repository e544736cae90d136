#include "import/hugging_face_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "import/floats_reader.h"
#include "import/hugging_face_json.h"
#include "import/quantized/unquantize.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 20;
constexpr size_t kMaxFiles = 4096;

constexpr std::string_view kUsualPrefix = "model.";
constexpr std::string_view kHead = "lm_head.weight";

bool Exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

// Whether a name is `ending`, or ends so after a dot.
bool EndsWithPart(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  return name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.';
}

}  // namespace

PublishedWeights::PublishedWeights(std::string folder, std::string embedding,
                                   const PublishedQuantization& quantization)
    : folder_(std::move(folder)), embedding_(std::move(embedding)) {
  Open();
  UseUsualNames();
  notices_ = Unquantize({folder_, &sources_, &left_}, quantization);
  RefuseFloat8();
}

// Nothing else here knows them.
void PublishedWeights::RefuseFloat8() const {
  for (const auto& [name, found] : left_) {
    if (!found.tensor.is_float8) continue;
    throw Error(ErrorCode::kUnsupported, folder_,
                fmt::format("tensor '{}' holds 8-bit floats, whose scales config.json must explain "
                            "(quantization_config of quant_method fp8 or compressed-tensors)",
                            Printable(name)));
  }
}

// As transformers does, a single file comes before an index, which may be left from older files.
void PublishedWeights::Open() {
  if (Exists(Path(kSingleFile))) return OpenFile(kSingleFile);
  const std::string index = Path(kIndexFile);
  if (!Exists(index)) RefuseWithoutWeights();
  for (const std::string& name : FilesOfIndex(index)) {
    if (!Exists(Path(name))) {
      throw Error(ErrorCode::kNotFound, Path(name),
                  fmt::format("is missing: {} names it as one of the model's files", kIndexFile));
    }
    OpenFile(name);
  }
}

void PublishedWeights::RefuseWithoutWeights() const {
  std::string other;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json",
                           "consolidated.safetensors", "consolidated.00.pth"}) {
    if (other.empty() && Exists(Path(name))) other = fmt::format(" (as in {})", name);
  }
  throw Error(ErrorCode::kNotFound, folder_,
              fmt::format("there is neither {} nor {}; other formats of weights{} cannot be read: "
                          "save the model with transformers first",
                          kSingleFile, kIndexFile, other));
}

std::vector<std::string> PublishedWeights::FilesOfIndex(const std::string& index) const {
  const PublishedJson map = PublishedJson::Read(index, kMaxIndexBytes).Object("weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.json().items()) {
    if (!file.is_string()) {
      throw Error(ErrorCode::kCorrupt, index, "weight_map", "names of files", file.type_name());
    }
    names.insert(file.get<std::string>());
  }
  if (names.empty() || names.size() > kMaxFiles) {
    throw Error(ErrorCode::kCorrupt, index, "files", fmt::format("1 to {}", kMaxFiles),
                std::to_string(names.size()));
  }
  for (const std::string& name : names) {
    // Names come from the file: none may lead out of the folder.
    if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      throw Error(ErrorCode::kCorrupt, index, "weight_map", "files of this folder",
                  "'" + Printable(name) + "'");
    }
  }
  return {names.begin(), names.end()};
}

void PublishedWeights::OpenFile(const std::string& name) {
  sources_.push_back(OpenFileReader(Path(name)));
  const size_t file = sources_.size() - 1;
  for (SafetensorsTensor& tensor : ReadSafetensorsHeader(*sources_[file]).tensors) {
    PublishedTensor found{file, std::move(tensor)};
    SafetensorsTensor& whole = found.tensor;
    if (whole.dtype == DType::kF64) {
      found.source = sources_.size();
      sources_.push_back(MakeFloatsReader(
          *sources_[file], {.begin = whole.offset, .count = whole.bytes / sizeof(double)},
          fmt::format("{}: tensor '{}'", Path(name), Printable(whole.name))));
      whole.dtype = DType::kF32;
      whole.offset = 0;
      whole.bytes = sources_.back()->size_bytes();
    }
    std::string key = whole.name;
    const auto [at, is_new] = left_.emplace(std::move(key), std::move(found));
    if (!is_new) {
      throw Error(ErrorCode::kCorrupt, Path(name), "tensor '" + Printable(at->first) + "'",
                  "in one file", "in two");
    }
  }
}

// The prefix is what comes before the one token embedding. Where there are several, names stay as
// they are.
void PublishedWeights::UseUsualNames() {
  std::vector<std::string> embeddings;
  std::vector<std::string> heads;
  for (const auto& [name, tensor] : left_) {
    if (EndsWithPart(name, embedding_)) embeddings.push_back(name);
    if (EndsWithPart(name, kHead)) heads.push_back(name);
  }
  if (embeddings.size() != 1) return;
  const std::string prefix =
      embeddings.front().substr(0, embeddings.front().size() - embedding_.size());
  if (prefix == kUsualPrefix) return;
  std::map<std::string, PublishedTensor> renamed;
  for (auto& [name, tensor] : left_) {
    std::string usual = name;
    if (heads.size() == 1 && name == heads.front()) {
      usual = kHead;
    } else if (name.starts_with(prefix)) {
      usual = std::string(kUsualPrefix) + name.substr(prefix.size());
    }
    const auto [at, is_new] = renamed.emplace(std::move(usual), std::move(tensor));
    if (is_new) continue;
    throw Error(
        ErrorCode::kUnsupported, folder_,
        fmt::format("tensors '{}' and '{}' both seem to be {}", Printable(at->second.tensor.name),
                    Printable(name), Printable(at->first)));
  }
  left_ = std::move(renamed);
}

PublishedTensor PublishedWeights::Take(const std::string& name) {
  const auto found = left_.find(name);
  if (found == left_.end()) {
    throw Error(ErrorCode::kNotFound, folder_, "tensor '" + name + "' is missing");
  }
  PublishedTensor out = std::move(found->second);
  left_.erase(found);
  return out;
}

}  // namespace hearth
