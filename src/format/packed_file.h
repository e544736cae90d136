// A packed file as a whole: what it is named after, its hashes, and how it is written and checked.
// docs/formats/bundle.md describes it; format/bundle_layout.h knows the bundles inside.
//
//   hearth.source.hash     u64, ModelHash of the file it was made from; 0 where there was none
//   hearth.tensor.hashes   u64 per tensor in the order of the directory: XXH3-64 of its bytes; 0
//                          for bundles, which carry checks of their own
//   hearth.header.hash     u64, XXH3-64 of all bytes before the tensor data, its own eight as zeros
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace hearth {

inline constexpr std::string_view kSourceHashKey = "hearth.source.hash";
inline constexpr std::string_view kTensorHashesKey = "hearth.tensor.hashes";
inline constexpr std::string_view kHeaderHashKey = "hearth.header.hash";

// Tells models apart, fine-tunes of one model too, without reading them whole: XXH3-64 over the
// header of every part and the first and last 4096 bytes of every tensor, in the order of the
// directory (all of a tensor that is shorter than both). A file that something was assumed of
// (GgufFile::Assume) is another model than without. Throws Error(kIo).
uint64_t ModelHash(const GgufFile& file);

// Turns the metadata of a model into that of its packed file: alignment, version, parts and the
// source's hash; what is said of a split set is dropped. The other hashes are PackedWriter's.
void SetPackedMetadata(const BundleLayout& layout, uint64_t source_hash, GgufMetadata* metadata);

// The layer that a bundle tensor's name says, or nothing where it names no bundle tensor.
std::optional<int64_t> LayerOfBundle(std::string_view tensor_name);

// How often each neuron fires, layer after layer, as a share of the tokens that its FFN computes;
// nothing where a layer does not say. Throws Error(kIo).
std::optional<std::vector<double>> ReadBundleRates(const GgufFile& file, int64_t num_layers);

// Writes a packed file as GgufWriter does, and its hashes. Not thread-safe.
class PackedWriter {
 public:
  // `metadata` comes from SetPackedMetadata.
  PackedWriter(const std::string& path, GgufMetadata metadata, std::vector<GgufTensorDecl> tensors);

  // As GgufWriter. What Complete lets others read is a packed file, hashes and all; values may be
  // set after it still, but for those of hashes.
  void Append(std::span<const std::byte> bytes);
  void SetValue(std::string_view key, const GgufValue& value) { writer_->SetValue(key, value); }
  const std::string& Complete();
  void Finish();
  uint64_t total_bytes() const { return writer_->total_bytes(); }
  uint64_t written_bytes() const { return writer_->written_bytes(); }
  void KeepOutOfPageCache() { writer_->KeepOutOfPageCache(); }

 private:
  void SetHashes();

  std::unique_ptr<GgufWriter> writer_;
  std::vector<bool> is_bundle_;
  std::vector<uint64_t> hashes_;  // of the tensors so far
  ChecksumStream hash_;
};

// What opening a packed file checks, which is all but the bytes of its tensors: one file, a known
// version, the header's hash, a hash per tensor, the file's size, and that bundle tensors are
// shaped as such, with their order and rates beside them. Throws Error(kCorrupt), or
// Error(kUnsupported) for another version; `file` is one that IsPacked.
void CheckPackedFile(const GgufFile& file);

// The hash that the file states for a tensor, by its place in the directory; nothing for bundles.
// After CheckPackedFile.
std::optional<uint64_t> StatedTensorHash(const GgufFile& file, size_t tensor);

}  // namespace hearth
