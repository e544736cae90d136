// Any bytes as a packed file: opened, checked, its layout and predictors read, all of it verified.
// Whatever is wrong must come out as hearth::Error.
//
// The header's hash would stop nearly every input at the door. Where the input has one it is made
// right first, so that what lies behind it is reached.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "format/gguf_parse.h"
#include "format/packed_file.h"
#include "model/registry.h"
#include "prepare/pack/verify.h"
#include "sparsity/predictor.h"

namespace {

using hearth::GgufFile;

GgufFile Open(std::vector<std::byte> bytes) {
  std::vector<std::unique_ptr<hearth::BlockReader>> parts;
  parts.push_back(hearth::MakeMemoryReader("input", std::move(bytes)));
  return GgufFile::FromReaders(std::move(parts));
}

// Sets the header's hash to what the header asks for.
void RepairHash(std::vector<std::byte>& bytes) {
  const GgufFile file = Open(bytes);
  const hearth::GgufValue* value = file.metadata().FindOrNull(hearth::kHeaderHashKey);
  if (value == nullptr || value->type != hearth::GgufType::kUint64) return;
  const uint64_t end = hearth::FindGgufValueEnd(file.part(0), hearth::kHeaderHashKey);
  std::byte* const hash = bytes.data() + end - sizeof(uint64_t);
  std::memset(hash, 0, sizeof(uint64_t));
  const uint64_t right = hearth::Checksum(std::span(bytes).first(file.header_bytes(0)));
  std::memcpy(hash, &right, sizeof(right));
}

// A checked file's bundles must be readable by their layout.
void ReadBundles(const GgufFile& file, const hearth::ModelSpec& spec) {
  for (const hearth::GgufTensor& tensor : file.tensors()) {
    if (!hearth::LayerOfBundle(tensor.name)) continue;
    const hearth::BundleLayout layout =
        hearth::ReadBundleLayout(file.metadata(), spec.hidden_size, tensor.ne[0]);
    std::vector<std::byte> bundle(layout.stride);
    file.ReadTensor(tensor, tensor.bytes - layout.stride, bundle);
    hearth::BundleIsIntact(layout, bundle);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  try {
    RepairHash(bytes);
    const GgufFile file = Open(std::move(bytes));
    if (!hearth::IsPacked(file.metadata())) return 0;
    hearth::CheckPackedFile(file);
    const hearth::ModelSpec spec = hearth::ReadModelSpec(file);
    ReadBundles(file, spec);
    hearth::ReadPredictorSpec(file, spec);
    const hearth::VerifyResult result = hearth::VerifyPackedFile(file, 1);
    if (result.bytes != file.file_bytes()) std::abort();
  } catch (const hearth::Error&) {  // refusing is fine
  }
  return 0;
}
