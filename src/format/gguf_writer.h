// Writes a GGUF v3 file as a stream: header and directory first, then tensor bytes in order, so
// that a file larger than memory can be made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "storage/atomic_file.h"

namespace hearth {

// What the directory says of a tensor; offsets are computed by the writer.
struct GgufTensorDecl {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> ne;  // 1 to 4 entries, ne[0] contiguous
};

// The value of general.file_type for a file whose weights are mostly of this type: a float type,
// Q4_0, Q4_1 or Q8_0, the types that Hearth writes.
uint32_t FileTypeOf(DType dtype);
inline constexpr uint32_t kQuantizationVersion = 2;  // of general.quantization_version

class GgufWriter {
 public:
  // Creates `path` under a temporary name beside it and writes header and directory.
  // Throws Error(kIo) on a full disk, Error(kInvalidArgument) for a shape that the type's blocks
  // do not divide or a repeated name. The alignment is metadata's general.alignment, else 32.
  GgufWriter(const std::string& path, const GgufMetadata& metadata,
             std::vector<GgufTensorDecl> tensors);
  // Destroyed before Finish, it leaves nothing behind.

  // Appends bytes of the tensors, in directory order; a call may cover part of a tensor but not
  // cross its end. Padding between tensors is written by the writer.
  void Append(std::span<const std::byte> bytes);

  // Bytes of the tensor that Append writes next which are still missing; 0 when all are written.
  uint64_t BytesLeftInTensor() const;

  // Gives a key that the constructor was told another value of the same type and length: one that
  // is known only when the tensors are written. Throws Error(kInvalidArgument) for any other.
  void SetValue(std::string_view key, const GgufValue& value);

  // All bytes before the tensor data, as Finish will leave them.
  std::span<const std::byte> header() const { return header_; }

  // As FileWriter.
  void KeepOutOfPageCache() { file_->KeepOutOfPageCache(); }

  // Checks that every tensor is complete, and lets others read the file under the name that it
  // returns, which is not yet its own.
  const std::string& Complete();

  // The same, and renames the file to its name.
  void Finish();

  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t written_bytes() const;

 private:
  struct Planned {
    uint64_t offset;
    uint64_t bytes;
  };

  std::string path_;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::byte> header_;
  std::map<std::string, std::pair<uint64_t, uint64_t>, std::less<>> values_;  // as in GgufLayout
  bool header_changed_ = false;   // since it was written
  std::vector<Planned> planned_;  // offsets from the start of the file
  size_t next_ = 0;
  uint64_t done_in_tensor_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace hearth
