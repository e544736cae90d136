#include "format/packed_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <new>
#include <utility>
#include <variant>

#include "base/error.h"
#include "format/gguf_parse.h"

namespace hearth {
namespace {

constexpr std::string_view kBundlePrefix = "blk.", kBundleSuffix = ".ffn_bundle";
// ModelHash reads that much of both ends of a tensor: fine-tuning changes nearly every weight.
constexpr uint64_t kHashedEndBytes = 4096;
constexpr uint64_t kHashChunkBytes = uint64_t{1} << 20;

GgufValue Uint64Value(uint64_t value) { return {GgufType::kUint64, value}; }

GgufValue HashesValue(std::vector<uint64_t> hashes) {
  return {GgufType::kArray, GgufArray{GgufType::kUint64, std::move(hashes)}};
}

const std::vector<uint64_t>* FindHashes(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.FindOrNull(kTensorHashesKey);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(&value->value);
  return array == nullptr ? nullptr : std::get_if<std::vector<uint64_t>>(&array->items);
}

// The header's hash: its own eight bytes, which end at `hash_end`, count as zeros.
uint64_t HashOfHeader(const BlockReader& reader, uint64_t header_bytes, uint64_t hash_end) {
  ChecksumStream hash;
  std::vector<std::byte> chunk;
  const auto add = [&](uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; at += chunk.size()) {
      chunk.resize(static_cast<size_t>(std::min(kHashChunkBytes, end - at)));
      reader.ReadAt(at, chunk);
      hash.Update(chunk);
    }
  };
  const uint64_t hash_begin = hash_end - sizeof(uint64_t);
  add(0, hash_begin);
  hash.Update(std::array<std::byte, sizeof(uint64_t)>{});
  add(hash_end, header_bytes);
  return hash.Digest();
}

class PackedFileChecker {
 public:
  explicit PackedFileChecker(const GgufFile& file) : file_(file) {}

  void Check() const {
    CheckVersion();
    if (file_.num_parts() != 1) Refuse("files of the set", "1", file_.num_parts());
    CheckHeaderHash();
    const std::vector<uint64_t>* hashes = FindHashes(file_.metadata());
    if (hashes == nullptr || hashes->size() != file_.tensors().size()) {
      Refuse(kTensorHashesKey, fmt::format("{} hashes", file_.tensors().size()),
             hashes == nullptr ? 0 : hashes->size());
    }
    CheckSize();
    CheckBundles();
  }

 private:
  template <typename Found>
  [[noreturn]] void Refuse(std::string_view what, std::string_view expected,
                           const Found& found) const {
    throw Error(ErrorCode::kCorrupt, file_.path(), what, expected, fmt::format("{}", found));
  }

  void CheckVersion() const {
    const uint64_t version = file_.metadata().GetUint(kFormatVersionKey);
    if (version == kPackedFormatVersion) return;
    throw Error(ErrorCode::kUnsupported, file_.path(), kFormatVersionKey,
                std::to_string(kPackedFormatVersion), std::to_string(version));
  }

  void CheckHeaderHash() const {
    const GgufValue* value = file_.metadata().FindOrNull(kHeaderHashKey);
    if (value == nullptr || value->type != GgufType::kUint64) {
      Refuse(kHeaderHashKey, "a uint64", value == nullptr ? "nothing" : GgufTypeName(value->type));
    }
    const uint64_t stated = std::get<uint64_t>(value->value);
    const uint64_t actual = HashOfHeader(file_.part(0), file_.header_bytes(0),
                                         FindGgufValueEnd(file_.part(0), kHeaderHashKey));
    if (stated == actual) return;
    throw Error(ErrorCode::kCorrupt, file_.path(),
                fmt::format("the header was altered after it was written: its hash is {:016x}, and "
                            "it says {:016x}",
                            actual, stated));
  }

  void CheckSize() const {
    uint64_t end = file_.header_bytes(0);
    for (const GgufTensor& tensor : file_.tensors()) {
      end = std::max(end, tensor.offset + tensor.bytes);
    }
    end = (end + file_.alignment() - 1) / file_.alignment() * file_.alignment();
    if (file_.file_bytes() != end) Refuse("size", fmt::format("{} bytes", end), file_.file_bytes());
  }

  // The tensor beside a bundle tensor that has an entry per bundle; may be missing.
  void CheckSide(const std::string& name, DType dtype, const GgufTensor& bundles) const {
    const GgufTensor* side = file_.FindTensorOrNull(name);
    if (side == nullptr) return;
    if (side->dtype != dtype) {
      Refuse(fmt::format("type of {}", name), NameOf(dtype), NameOf(side->dtype));
    }
    if (side->ne[0] != bundles.ne[1] || side->ne[1] != bundles.ne[2] ||
        side->ne[2] * side->ne[3] != 1) {
      Refuse(fmt::format("shape of {}", name), fmt::format("{} x {}", bundles.ne[1], bundles.ne[2]),
             fmt::format("{} x {} x {} x {}", side->ne[0], side->ne[1], side->ne[2], side->ne[3]));
    }
  }

  void CheckBundles() const {
    if (file_.alignment() % kBundleAlignment != 0) {
      Refuse("general.alignment", "a multiple of 512", file_.alignment());
    }
    for (const GgufTensor& tensor : file_.tensors()) {
      const std::optional<int64_t> layer = LayerOfBundle(tensor.name);
      if (!layer) continue;
      if (tensor.dtype != DType::kI8) {
        Refuse(fmt::format("type of {}", tensor.name), "I8", NameOf(tensor.dtype));
      }
      if (tensor.ne[0] % kBundleAlignment != 0 || tensor.ne[3] != 1) {
        Refuse(fmt::format("shape of {}", tensor.name), "bundles of a multiple of 512 bytes",
               fmt::format("{} x {} x {} x {}", tensor.ne[0], tensor.ne[1], tensor.ne[2],
                           tensor.ne[3]));
      }
      CheckSide(BundleOrderName(*layer), DType::kI32, tensor);
      CheckSide(BundleRateName(*layer), DType::kF32, tensor);
    }
  }

  const GgufFile& file_;
};

}  // namespace

namespace {

// Strings and numbers, which are all that anybody assumes.
void AddAssumed(const GgufMetadata& assumed, ChecksumStream& hash) {
  for (const auto& [key, value] : assumed.values()) {
    hash.Update(std::as_bytes(std::span<const char>(key)));
    if (const auto* text = std::get_if<std::string>(&value.value)) {
      hash.Update(std::as_bytes(std::span<const char>(*text)));
    } else {
      const double number = assumed.GetFloat(key);
      hash.Update(std::as_bytes(std::span(&number, 1)));
    }
  }
}

}  // namespace

uint64_t ModelHash(const GgufFile& file) {
  ChecksumStream hash;
  std::vector<std::byte> chunk;
  for (size_t part = 0; part < file.num_parts(); ++part) {
    const uint64_t end = file.header_bytes(part);
    for (uint64_t at = 0; at < end; at += chunk.size()) {
      chunk.resize(static_cast<size_t>(std::min(kHashChunkBytes, end - at)));
      file.part(part).ReadAt(at, chunk);
      hash.Update(chunk);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const auto add = [&](uint64_t begin, uint64_t bytes) {
      chunk.resize(static_cast<size_t>(bytes));
      file.ReadTensor(tensor, begin, chunk);
      hash.Update(chunk);
    };
    if (tensor.bytes <= 2 * kHashedEndBytes) {
      add(0, tensor.bytes);
    } else {
      add(0, kHashedEndBytes);
      add(tensor.bytes - kHashedEndBytes, kHashedEndBytes);
    }
  }
  AddAssumed(file.assumed(), hash);
  return hash.Digest();
}

void SetPackedMetadata(const BundleLayout& layout, uint64_t source_hash, GgufMetadata* metadata) {
  GgufMetadata out(metadata->file_name());
  for (const auto& [key, value] : metadata->values()) {
    if (!key.starts_with("split.")) out.Set(key, value);
  }
  WriteBundleLayout(layout, &out);
  out.SetUint64(kSourceHashKey, source_hash);
  *metadata = std::move(out);
}

std::optional<int64_t> LayerOfBundle(std::string_view tensor_name) {
  if (!tensor_name.starts_with(kBundlePrefix) || !tensor_name.ends_with(kBundleSuffix) ||
      tensor_name.size() <= kBundlePrefix.size() + kBundleSuffix.size()) {
    return std::nullopt;
  }
  tensor_name.remove_prefix(kBundlePrefix.size());
  tensor_name.remove_suffix(kBundleSuffix.size());
  int64_t layer = 0;
  const char* const end = tensor_name.data() + tensor_name.size();
  const auto [stop, error] = std::from_chars(tensor_name.data(), end, layer);
  if (error != std::errc() || stop != end || layer < 0) return std::nullopt;
  return layer;
}

std::optional<std::vector<double>> ReadBundleRates(const GgufFile& file, int64_t num_layers) {
  std::vector<double> rates;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const GgufTensor* tensor = file.FindTensorOrNull(BundleRateName(layer));
    if (tensor == nullptr || tensor->dtype != DType::kF32) return std::nullopt;
    std::vector<float> stored(tensor->bytes / sizeof(float));
    file.ReadTensor(*tensor, 0, std::as_writable_bytes(std::span(stored)));
    rates.insert(rates.end(), stored.begin(), stored.end());
  }
  return rates;
}

PackedWriter::PackedWriter(const std::string& path, GgufMetadata metadata,
                           std::vector<GgufTensorDecl> tensors) {
  metadata.Set(kTensorHashesKey, HashesValue(std::vector<uint64_t>(tensors.size())));
  metadata.SetUint64(kHeaderHashKey, 0);
  for (const GgufTensorDecl& tensor : tensors) {
    is_bundle_.push_back(LayerOfBundle(tensor.name).has_value());
  }
  writer_ = std::make_unique<GgufWriter>(path, metadata, std::move(tensors));
}

void PackedWriter::Append(std::span<const std::byte> bytes) {
  const uint64_t left = writer_->BytesLeftInTensor();
  writer_->Append(bytes);
  if (bytes.empty()) return;
  const bool is_bundle = is_bundle_[hashes_.size()];
  if (!is_bundle) hash_.Update(bytes);
  if (bytes.size() < left) return;
  hashes_.push_back(is_bundle ? 0 : hash_.Digest());
  hash_.Restart();
}

void PackedWriter::SetHashes() {
  if (hashes_.size() != is_bundle_.size()) return;  // GgufWriter will refuse
  writer_->SetValue(kTensorHashesKey, HashesValue(hashes_));
  writer_->SetValue(kHeaderHashKey, Uint64Value(0));
  writer_->SetValue(kHeaderHashKey, Uint64Value(Checksum(writer_->header())));
}

const std::string& PackedWriter::Complete() {
  SetHashes();
  return writer_->Complete();
}

void PackedWriter::Finish() {
  SetHashes();
  writer_->Finish();
}

void CheckPackedFile(const GgufFile& file) { PackedFileChecker(file).Check(); }

std::optional<uint64_t> StatedTensorHash(const GgufFile& file, size_t tensor) {
  const std::vector<uint64_t>* hashes = FindHashes(file.metadata());
  if (hashes == nullptr || tensor >= hashes->size() || tensor >= file.tensors().size() ||
      LayerOfBundle(file.tensors()[tensor].name)) {
    return std::nullopt;
  }
  return (*hashes)[tensor];
}

}  // namespace hearth
