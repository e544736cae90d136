#include "import/adapter_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/gguf_view.h"
#include "format/safetensors.h"
#include "import/archs/published_families.h"
#include "import/neighbouring_rows.h"
#include "import/peft_config.h"
#include "kernels/dequantize.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kWeightsFile[] = "adapter_model.safetensors";
// How much of a tensor is read at a time.
constexpr uint64_t kBytesAtOnce = uint64_t{1} << 20;

// What may stand before the layers in a module's name: PEFT keeps the names of the model that was
// trained, which may also read images.
constexpr std::string_view kPrefixes[] = {"",
                                          "model.",
                                          "model.language_model.",
                                          "language_model.model.",
                                          "language_model.",
                                          "transformer.",
                                          "decoder.",
                                          "model.decoder."};

// The alpha of a GGUF adapter.
double AlphaOf(const GgufFile& file) {
  const double alpha = file.metadata().GetFloat("adapter.lora.alpha");
  if (std::abs(alpha) <= kMostAdapterAlpha) return alpha;
  throw Error(ErrorCode::kCorrupt, file.path(), "adapter.lora.alpha",
              fmt::format("a number from -{0} to {0}", kMostAdapterAlpha),
              fmt::format("{}", alpha));
}

void CheckKind(const GgufFile& file, const ModelSpec& base) {
  const GgufMetadata& metadata = file.metadata();
  const std::string* const type = metadata.FindString("general.type");
  if (type == nullptr || *type != "adapter") {
    throw Error(ErrorCode::kUnsupported, file.path(), "general.type", "adapter",
                type == nullptr ? "nothing: it is a model" : "'" + Printable(*type) + "'");
  }
  const std::string& kind = metadata.GetString("adapter.type");
  if (kind != "lora") {
    throw Error(ErrorCode::kUnsupported, file.path(), "adapter.type", "lora",
                "'" + Printable(kind) + "'");
  }
  if (metadata.Has("adapter.alora.invocation_tokens")) {
    throw Error(ErrorCode::kUnsupported, file.path(),
                "adapters that begin at certain tokens (adapter.alora) are not computed");
  }
  const std::string& architecture = metadata.GetString("general.architecture");
  if (architecture != base.architecture) {
    throw Error(ErrorCode::kUnsupported, file.path(), "architecture of its base", base.architecture,
                "'" + Printable(architecture) + "'");
  }
}

AdapterFile OpenGguf(const std::string& path, const ModelSpec& base) {
  AdapterFile out{GgufFile::Open(path), {}};
  CheckKind(out.file, base);
  const double alpha = AlphaOf(out.file);
  for (const GgufTensor& tensor : out.file.tensors()) {
    if (!tensor.name.ends_with(kLoraA)) continue;
    // Writers of such files use an alpha of 0 for "not scaled".
    out.scales.emplace(tensor.name.substr(0, tensor.name.size() - kLoraA.size()),
                       alpha == 0 ? 1 : alpha / static_cast<double>(tensor.ne[1]));
  }
  return out;
}

// "model.layers.3.self_attn.q_proj": layer 3, "self_attn.q_proj".
struct ModulePlace {
  int64_t layer = 0;
  std::string_view module;
};

std::optional<ModulePlace> PlaceOf(std::string_view name, std::string_view layers) {
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    std::string_view rest = name.substr(prefix.size());
    if (!rest.starts_with(layers) || rest.size() <= layers.size() || rest[layers.size()] != '.') {
      continue;
    }
    rest.remove_prefix(layers.size() + 1);
    ModulePlace place;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), place.layer);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') continue;
    place.module = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
    return place;
  }
  return std::nullopt;
}

// The two tensors of a module, and where they go.
struct PeftModule {
  const SafetensorsTensor* a = nullptr;
  const SafetensorsTensor* b = nullptr;
};

class PeftReader {
 public:
  PeftReader(const std::string& path, std::string config_path, const ModelSpec& base)
      : path_(path), base_(base), config_(ReadPeftConfig(config_path)) {}

  AdapterFile Open() {
    sources_.push_back(OpenFileReader(path_));
    const SafetensorsHeader header = ReadSafetensorsHeader(*sources_[0]);
    std::map<std::string, PeftModule> modules;
    for (const SafetensorsTensor& tensor : header.tensors) Sort(tensor, modules);
    if (modules.empty()) throw Error(ErrorCode::kCorrupt, path_, "it has no tensors");
    std::map<std::string, double, std::less<>> scales;
    for (const auto& [name, module] : modules) scales.emplace(Take(name, module));
    GgufMetadata metadata(path_);
    metadata.SetString("general.architecture", base_.architecture);
    metadata.SetString("general.type", "adapter");
    metadata.SetString("adapter.type", "lora");
    return {MakeGgufView(path_, metadata, tensors_, std::move(sources_)), std::move(scales)};
  }

 private:
  void Sort(const SafetensorsTensor& tensor, std::map<std::string, PeftModule>& modules) const {
    constexpr std::string_view kOuter = "base_model.model.";
    constexpr std::string_view kPublishedA = ".lora_A.weight", kPublishedB = ".lora_B.weight";
    std::string_view name = tensor.name;
    if (name.starts_with(kOuter)) name.remove_prefix(kOuter.size());
    const bool is_a = name.ends_with(kPublishedA);
    if (!is_a && !name.ends_with(kPublishedB)) {
      throw Error(ErrorCode::kUnsupported, path_,
                  fmt::format("tensor '{}': only lora_A and lora_B of linear modules are computed",
                              Printable(tensor.name)));
    }
    name.remove_suffix(kPublishedA.size());
    PeftModule& module = modules[std::string(name)];
    const SafetensorsTensor*& place = is_a ? module.a : module.b;
    if (place != nullptr) {
      throw Error(ErrorCode::kCorrupt, path_,
                  fmt::format("tensors '{}' and '{}' are the same one of a module",
                              Printable(place->name), Printable(tensor.name)));
    }
    place = &tensor;
  }

  // Adds the tensors of a module; returns the matrix's name and the scale.
  std::pair<std::string, double> Take(const std::string& name, const PeftModule& module) {
    const FoundModule found = Find(name);
    const std::string matrix = fmt::format("blk.{}.{}.weight", found.layer, found.module->gguf);
    for (const SafetensorsTensor* tensor : {module.a, module.b}) CheckTensor(name, tensor);
    const auto rank = static_cast<int64_t>(module.a->shape[0]);
    if (rank != config_.RankOf(name)) {
      throw Error(ErrorCode::kCorrupt, path_, "rank of " + Printable(module.a->name),
                  fmt::format("{}, as {} says", config_.RankOf(name), kConfigFile),
                  std::to_string(rank));
    }
    if (config_.has_inputs_first && found.module->change != PublishedChange::kTranspose) {
      throw Error(ErrorCode::kUnsupported, config_.path,
                  fmt::format("'fan_in_fan_out' is set, and {} is no module whose inputs come "
                              "first",
                              Printable(name)));
    }
    Add(matrix + std::string(kLoraA), *module.a, PublishedChange::kNone, found);
    Add(matrix + std::string(kLoraB), *module.b, found.module->change, found);
    return {matrix, config_.ScaleOf(name)};
  }

  struct FoundModule {
    int64_t layer = 0;
    const PublishedFamily* family = nullptr;
    const PublishedModule* module = nullptr;
  };

  FoundModule Find(const std::string& name) const {
    FoundModule found;
    ForFamiliesOf(base_.architecture, [&](const PublishedFamily& family) {
      const std::optional<ModulePlace> place = PlaceOf(name, family.layers);
      if (!place || found.module != nullptr) return;
      for (const auto modules : {family.layer, family.dense, family.mixture}) {
        for (const PublishedModule& module : modules) {
          if (place->module == module.published) found = {place->layer, &family, &module};
        }
      }
    });
    if (found.module != nullptr) return found;
    const bool is_experts = name.find("experts.") != name.npos;
    throw Error(ErrorCode::kUnsupported, path_,
                is_experts ? fmt::format("module '{}': adapters of experts are not computed",
                                         Printable(name))
                           : fmt::format("module '{}' is no matrix of a '{}' model that an adapter "
                                         "can change",
                                         Printable(name), base_.architecture));
  }

  void CheckTensor(const std::string& module, const SafetensorsTensor* tensor) const {
    if (tensor == nullptr) {
      throw Error(ErrorCode::kCorrupt, path_,
                  fmt::format("module '{}' has only one of lora_A and lora_B", Printable(module)));
    }
    const std::vector<uint64_t>& shape = tensor->shape;
    if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0) {
      std::string found;
      for (const uint64_t size : shape)
        found += fmt::format("{}{}", found.empty() ? "" : ", ", size);
      throw Error(ErrorCode::kCorrupt, path_, "shape of " + Printable(tensor->name),
                  "two sizes, the rank at least 1", "[" + found + "]");
    }
    const bool is_float = tensor->dtype == DType::kF32 || tensor->dtype == DType::kF16 ||
                          tensor->dtype == DType::kBF16;
    if (!is_float) {
      throw Error(ErrorCode::kUnsupported, path_, "type of " + Printable(tensor->name),
                  "F32, F16 or BF16", NameOf(tensor->dtype));
    }
  }

  // Puts the rows in the order of the base's matrix: where GGUF rotates neighbouring rows, rows of
  // q and k that are half a head apart become neighbours.
  void Add(const std::string& gguf, const SafetensorsTensor& tensor, PublishedChange change,
           const FoundModule& found) {
    GgufViewTensor view;
    view.decl.name = gguf;
    view.decl.dtype = tensor.dtype;
    view.decl.ne.assign(tensor.shape.rbegin(), tensor.shape.rend());
    Region region = {.source = 0, .from = tensor.offset, .bytes = tensor.bytes};
    const bool is_rotated = change == PublishedChange::kQueries || change == PublishedChange::kKeys;
    if (is_rotated && found.family->interleaves_heads) region = Interleaved(tensor, found.layer);
    if (change == PublishedChange::kQkvGroups) {
      throw Error(ErrorCode::kUnsupported, path_,
                  fmt::format("tensor '{}': adapters of {} are read from GGUF files alone",
                              Printable(tensor.name), found.module->published));
    }
    view.regions.push_back(region);
    tensors_.push_back(std::move(view));
  }

  Region Interleaved(const SafetensorsTensor& tensor, int64_t layer) const {
    const bool is_known = layer >= 0 && layer < base_.num_layers;
    const auto head_dim =
        is_known
            ? static_cast<uint64_t>(base_.layers[static_cast<size_t>(layer)].attention.head_dim)
            : 0;
    if (head_dim == 0 || head_dim % 2 != 0 || tensor.shape[0] % head_dim != 0) {
      throw Error(ErrorCode::kCorrupt, path_, "rows of " + Printable(tensor.name),
                  is_known ? fmt::format("heads of {}", head_dim)
                           : fmt::format("a layer below {}", base_.num_layers),
                  is_known ? std::to_string(tensor.shape[0]) : std::to_string(layer));
    }
    return NeighbouringRows(0, tensor.offset, tensor.shape[0] / head_dim, head_dim,
                            tensor.bytes / tensor.shape[0]);
  }

  const std::string path_;
  const ModelSpec& base_;
  const PeftConfig config_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::vector<GgufViewTensor> tensors_;
};

bool IsThere(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

AdapterFile OpenPeft(const fs::path& weights, const ModelSpec& base) {
  const fs::path config = weights.parent_path() / kConfigFile;
  if (!IsThere(config)) {
    throw Error(ErrorCode::kNotFound, config.string(),
                "is missing: it says how the adapter's tensors are scaled");
  }
  if (!IsThere(weights)) {
    throw Error(ErrorCode::kNotFound, weights.string(),
                "is missing: PEFT can make it from other formats (adapter_model.bin)");
  }
  return PeftReader(weights.string(), config.string(), base).Open();
}

}  // namespace

bool IsAdapterFolder(const std::string& path) { return IsThere(fs::path(path) / kConfigFile); }

AdapterFile OpenAdapter(const std::string& path, const ModelSpec& base) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return OpenPeft(fs::path(path) / kWeightsFile, base);
  if (path.ends_with(".safetensors")) return OpenPeft(path, base);
  return OpenGguf(path, base);
}

void ReadAdapterRows(const GgufFile& file, const GgufTensor& tensor, RowRange rows,
                     const std::function<void(uint64_t row, std::span<const float>)>& fn) {
  const uint64_t row_bytes = RowBytes(tensor.dtype, tensor.ne[0]);
  const uint64_t at_once = std::max<uint64_t>(kBytesAtOnce / row_bytes, 1);
  std::vector<std::byte> stored(std::min(at_once, rows.count) * row_bytes);
  std::vector<float> floats(tensor.ne[0]);
  for (uint64_t done = 0; done < rows.count; done += at_once) {
    const uint64_t count = std::min(at_once, rows.count - done);
    file.ReadTensor(tensor, (rows.first + done) * row_bytes,
                    std::span(stored).first(count * row_bytes));
    for (uint64_t r = 0; r < count; ++r) {
      kernels::Dequantize(tensor.dtype, stored.data() + r * row_bytes, std::ssize(floats),
                          floats.data());
      if (!std::all_of(floats.begin(), floats.end(), [](float x) { return std::isfinite(x); })) {
        throw Error(ErrorCode::kCorrupt, file.path(),
                    "tensor " + Printable(tensor.name) + " has numbers that are not finite");
      }
      fn(done + r, floats);
    }
  }
}

}  // namespace hearth
