#include "import/hugging_face_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "import/floats_reader.h"
#include "import/neighbouring_rows.h"

namespace hearth {
namespace {

constexpr const char* kExpertNames[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};

Region WholeOf(const PublishedTensor& found) {
  return {.source = found.source, .from = found.tensor.offset, .bytes = found.tensor.bytes};
}

uint64_t NumberBytes(DType dtype) { return InfoOf(dtype).block_bytes; }
bool HasBlocks(DType dtype) { return InfoOf(dtype).block_size > 1; }

// What names begin with in the parts of a model that see images.
constexpr const char* kImagePrefixes[] = {"vision_tower.", "multi_modal_projector.",
                                          "model.vision_tower.", "model.multi_modal_projector."};

bool IsOfImages(const std::string& name) {
  return std::any_of(std::begin(kImagePrefixes), std::end(kImagePrefixes),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

// TurboSparse folders hold predictors in a layout that nobody has published. The model computes the
// same without them.
bool IsOfPredictor(const std::string& name) { return name.find(".predictor") != name.npos; }

std::string EmbeddingOf(const PublishedConfig& config) {
  return std::string(config.family->embedding) + ".weight";
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

std::vector<std::string> NoticesOfWeights(const std::string& folder,
                                          const PublishedConfig& config) {
  const PublishedWeights weights(folder, EmbeddingOf(config), config.quantization);
  std::vector<std::string> notices = weights.notices();
  if (std::any_of(weights.left().begin(), weights.left().end(),
                  [](const auto& found) { return IsOfPredictor(found.first); })) {
    notices.push_back(
        "predictors in another program's layout were left out: 'hearth pack --text' makes its own");
  }
  return notices;
}

PublishedTensors::PublishedTensors(const std::string& folder, const PublishedConfig& config)
    : folder_(folder),
      config_(config),
      weights_(folder, EmbeddingOf(config), config.quantization),
      sources_(weights_.TakeSources()) {}

void PublishedTensors::RefuseRows(const std::string& published, const std::string& expected,
                                  uint64_t rows) const {
  throw Error(ErrorCode::kCorrupt, folder_, "rows of " + published, expected, std::to_string(rows));
}

PublishedTensor PublishedTensors::TakeShaped(const std::string& published, size_t max_dims) {
  PublishedTensor found = weights_.Take(published);
  const std::vector<uint64_t>& shape = found.tensor.shape;
  const bool is_empty = std::count(shape.begin(), shape.end(), uint64_t{0}) > 0;
  if (shape.empty() || shape.size() > max_dims || is_empty) {
    throw Error(ErrorCode::kCorrupt, folder_, "dimensions of " + published,
                fmt::format("1 to {}, none of them 0", max_dims), std::to_string(shape.size()));
  }
  return found;
}

void PublishedTensors::Add(const std::string& gguf, const SafetensorsTensor& like,
                           std::vector<Region> regions) {
  GgufViewTensor view;
  view.decl.name = gguf;
  view.decl.dtype = like.dtype;
  view.decl.ne.assign(like.shape.rbegin(), like.shape.rend());
  view.regions = std::move(regions);
  tensors_.push_back(std::move(view));
}

void PublishedTensors::AddMade(const std::string& gguf, DType dtype, std::vector<uint64_t> ne,
                               std::unique_ptr<BlockReader> source) {
  GgufViewTensor view;
  view.decl.name = gguf;
  view.decl.dtype = dtype;
  view.decl.ne = std::move(ne);
  view.regions.push_back({.source = sources_.size(), .bytes = source->size_bytes()});
  sources_.push_back(std::move(source));
  tensors_.push_back(std::move(view));
}

void PublishedTensors::AddFloats(const std::string& gguf, const std::vector<float>& values) {
  if (values.empty()) return;
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  AddMade(gguf, DType::kF32, {values.size()}, MakeMemoryReader(gguf, std::move(bytes)));
}

void PublishedTensors::Take(const std::string& published, const std::string& gguf,
                            PublishedChange change) {
  const PublishedTensor found = TakeShaped(published, 3);
  const SafetensorsTensor& tensor = found.tensor;
  const bool interleaves = config_.family->interleaves_heads;
  if (change == PublishedChange::kQueries && interleaves) {
    Add(gguf, tensor, {Interleaved(published, found, config_.num_heads)});
  } else if (change == PublishedChange::kKeys && interleaves) {
    Add(gguf, tensor, {Interleaved(published, found, config_.num_kv_heads)});
  } else if (change == PublishedChange::kQkvGroups) {
    Add(gguf, tensor, QkvByKind(published, found));
  } else if (change == PublishedChange::kTranspose && tensor.shape.size() > 1) {
    AddTransposed(gguf, found);
  } else if (change == PublishedChange::kAddOne) {
    if (!IsFloat(tensor.dtype)) {
      throw Error(ErrorCode::kUnsupported, folder_, "type of " + published, "F32, F16 or BF16",
                  NameOf(tensor.dtype));
    }
    const NumberRun run = {.begin = tensor.offset,
                           .count = tensor.bytes / NumberBytes(tensor.dtype),
                           .dtype = tensor.dtype,
                           .plus = 1};
    AddMade(gguf, DType::kF32, {tensor.shape.rbegin(), tensor.shape.rend()},
            MakeFloatsReader(*sources_[found.source], run, published));
  } else {
    Add(gguf, tensor, {WholeOf(found)});
  }
}

void PublishedTensors::TakeModule(const PublishedModule& module, const std::string& from,
                                  const std::string& to) {
  const std::string published = from + module.published;
  const std::string gguf = to + module.gguf;
  if (module.is_optional && !Has(published + ".weight")) return;
  Take(published + ".weight", gguf + ".weight", module.change);
  if (module.may_have_bias && Has(published + ".bias")) {
    Take(published + ".bias", gguf + ".bias", module.change);
  }
}

void PublishedTensors::TakeLayer(int64_t layer) {
  const PublishedFamily& family = *config_.family;
  const std::string from = fmt::format("model.{}.{}.", family.layers, layer);
  const std::string to = fmt::format("blk.{}.", layer);
  for (const PublishedModule& module : family.layer) TakeModule(module, from, to);
  if (config_.num_experts == 0 || layer < config_.num_dense_layers) {
    for (const PublishedModule& module : family.dense) TakeModule(module, from, to);
    return;
  }
  for (const PublishedModule& module : family.mixture) TakeModule(module, from, to);
  if (family.experts->parts[0] != nullptr) TakeExperts(from, to);
  if (family.take_layer != nullptr) family.take_layer(*this, from, to);
}

void PublishedTensors::TakeExperts(const std::string& from, const std::string& to) {
  const PublishedExperts& names = *config_.family->experts;
  for (size_t part = 0; part < 3; ++part) {
    TakeExpertPart(from + names.experts, names.parts[part], to + kExpertNames[part] + ".weight");
  }
}

// The matrices of all experts as one tensor.
void PublishedTensors::TakeExpertPart(const std::string& experts, const std::string& part,
                                      const std::string& gguf) {
  SafetensorsTensor whole;
  std::vector<Region> regions;
  for (int64_t e = 0; e < config_.num_experts; ++e) {
    const std::string published = fmt::format("{}.{}.{}.weight", experts, e, part);
    const PublishedTensor found = TakeShaped(published, 2);
    if (e == 0) whole = found.tensor;
    if (whole.shape != found.tensor.shape || whole.dtype != found.tensor.dtype) {
      throw Error(ErrorCode::kCorrupt, folder_, "type and shape of " + published,
                  "those of expert 0", "others");
    }
    regions.push_back(WholeOf(found));
  }
  whole.shape.insert(whole.shape.begin(), static_cast<uint64_t>(config_.num_experts));
  Add(gguf, whole, std::move(regions));
}

void PublishedTensors::TakeHalves(const std::string& published, const std::string& first,
                                  const std::string& second) {
  const PublishedTensor found = TakeShaped(published, 3);
  SafetensorsTensor half = found.tensor;
  if (half.shape.size() < 2 || half.shape[half.shape.size() - 2] % 2 != 0) {
    RefuseRows(published, "an even number", half.shape.front());
  }
  half.shape[half.shape.size() - 2] /= 2;
  const uint64_t experts = half.shape.size() == 3 ? half.shape.front() : 1;
  const uint64_t bytes = found.tensor.bytes / experts / 2;
  for (uint64_t part = 0; part < 2; ++part) {
    const Region region = {.source = found.source,
                           .from = found.tensor.offset + part * bytes,
                           .bytes = bytes,
                           .loops = {{{.count = experts, .from_step = 2 * bytes}}}};
    Add(part == 0 ? first : second, half, {region});
  }
}

void PublishedTensors::TakeAlternating(const std::string& published, const std::string& first,
                                       const std::string& second) {
  const PublishedTensor found = TakeShaped(published, 3);
  const SafetensorsTensor& tensor = found.tensor;
  RefuseBlocks(tensor);
  const uint64_t both = tensor.shape.back();
  if (both % 2 != 0) RefuseRows(published, "an even last dimension", both);
  const bool is_bias = tensor.shape.size() < 3;
  const uint64_t experts = tensor.shape.size() > 1 ? tensor.shape.front() : 1;
  const uint64_t inputs = is_bias ? 1 : tensor.shape[1];
  const uint64_t bytes = NumberBytes(tensor.dtype);
  SafetensorsTensor made = tensor;  // [experts, outputs, inputs], biases [experts, outputs]
  made.shape = is_bias ? std::vector<uint64_t>{experts, both / 2}
                       : std::vector<uint64_t>{experts, both / 2, inputs};
  for (uint64_t part = 0; part < 2; ++part) {
    const Region region = {.source = found.source,
                           .from = tensor.offset + part * bytes,
                           .bytes = bytes,
                           .loops = {{{.count = experts, .from_step = inputs * both * bytes},
                                      {.count = both / 2, .from_step = 2 * bytes},
                                      {.count = inputs, .from_step = both * bytes}}}};
    Add(part == 0 ? first : second, made, {region});
  }
}

void PublishedTensors::RefuseBlocks(const SafetensorsTensor& tensor) const {
  if (!HasBlocks(tensor.dtype)) return;
  throw Error(ErrorCode::kUnsupported, folder_, "type of " + tensor.name,
              "float weights, because the family stores them in another order",
              fmt::format("quantized ones ({})", NameOf(tensor.dtype)));
}

// [..., inputs, outputs] as [..., outputs, inputs].
void PublishedTensors::AddTransposed(const std::string& gguf, const PublishedTensor& found) {
  const SafetensorsTensor& tensor = found.tensor;
  RefuseBlocks(tensor);
  const size_t dims = tensor.shape.size();
  const uint64_t inputs = tensor.shape[dims - 2];
  const uint64_t outputs = tensor.shape[dims - 1];
  const uint64_t bytes = NumberBytes(tensor.dtype);
  const uint64_t matrices = dims == 3 ? tensor.shape.front() : 1;
  const Region region = {.source = found.source,
                         .from = tensor.offset,
                         .bytes = bytes,
                         .loops = {{{.count = matrices, .from_step = inputs * outputs * bytes},
                                    {.count = outputs, .from_step = bytes},
                                    {.count = inputs, .from_step = outputs * bytes}}}};
  SafetensorsTensor made = tensor;
  std::swap(made.shape[dims - 2], made.shape[dims - 1]);
  Add(gguf, made, {region});
}

// Rows half a head apart become neighbours.
Region PublishedTensors::Interleaved(const std::string& published, const PublishedTensor& found,
                                     int64_t heads) const {
  const uint64_t rows = found.tensor.shape.front();
  const auto head_dim = static_cast<uint64_t>(config_.head_dim);
  if (head_dim % 2 != 0 || rows != static_cast<uint64_t>(heads) * head_dim) {
    RefuseRows(published, fmt::format("{} heads of {}", heads, head_dim), rows);
  }
  return NeighbouringRows(found.source, found.tensor.offset, rows / head_dim, head_dim,
                          found.tensor.bytes / rows);
}

// First all queries, then all keys, then all values.
std::vector<Region> PublishedTensors::QkvByKind(const std::string& published,
                                                const PublishedTensor& found) const {
  const auto groups = static_cast<uint64_t>(config_.num_kv_heads);
  const auto heads = static_cast<uint64_t>(config_.num_heads);
  const auto head_dim = static_cast<uint64_t>(config_.head_dim);
  const uint64_t rows = found.tensor.shape.front();
  if (groups == 0 || heads % groups != 0 || rows != (heads + 2 * groups) * head_dim) {
    RefuseRows(published, fmt::format("{} heads and {} key heads of {}", heads, groups, head_dim),
               rows);
  }
  const uint64_t head_bytes = found.tensor.bytes / rows * head_dim;
  const uint64_t queries = heads / groups;
  const auto of_groups = [&](uint64_t first, uint64_t count) {
    return Region{
        .source = found.source,
        .from = found.tensor.offset + first * head_bytes,
        .bytes = count * head_bytes,
        .loops = {{{.count = groups, .from_step = (queries + 2) * head_bytes}}},
    };
  };
  return {of_groups(0, queries), of_groups(queries, 1), of_groups(queries + 1, 1)};
}

void PublishedTensors::RefuseLeftOvers() const {
  const PublishedFamily& family = *config_.family;
  for (const auto& [name, found] : weights_.left()) {
    const std::string& tensor = name;
    const bool is_derived =
        std::any_of(family.derived.begin(), family.derived.end(),
                    [&](const char* ending) { return tensor.ends_with(ending); });
    const bool is_tied = config_.tied_embeddings && name == "lm_head.weight";
    if (is_derived || is_tied || IsOfPredictor(name)) continue;
    if (config_.has_images && IsOfImages(name)) continue;
    throw Error(ErrorCode::kUnsupported, folder_,
                fmt::format("tensor '{}' is not part of a '{}' model as Hearth knows it",
                            Printable(found.tensor.name), family.model_type));
  }
}

GgufFile PublishedTensors::MakeFile(const GgufMetadata& metadata) {
  return MakeGgufView(folder_, metadata, tensors_, std::move(sources_));
}

}  // namespace hearth
