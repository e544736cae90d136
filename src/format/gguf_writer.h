// Writes a GGUF v3 file as a stream: header and directory first, then tensor bytes in order, so
// that a file larger than memory can be made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "storage/file_writer.h"

namespace hearth {

// What the directory says of a tensor; offsets are computed by the writer.
struct GgufTensorDecl {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> ne;  // 1 to 4 entries, ne[0] contiguous
};

class GgufWriter {
 public:
  // Creates `path` under a temporary name beside it and writes header and directory.
  // Throws Error(kIo) on a full disk, Error(kInvalidArgument) for a shape that the type's blocks
  // do not divide or a repeated name. The alignment is metadata's general.alignment, else 32.
  GgufWriter(const std::string& path, const GgufMetadata& metadata,
             std::vector<GgufTensorDecl> tensors);
  ~GgufWriter();  // removes the temporary file unless Finish was called

  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // Appends bytes of the tensors, in directory order; a call may cover part of a tensor but not
  // cross its end. Padding between tensors is written by the writer.
  void Append(std::span<const std::byte> bytes);

  // Bytes of the tensor that Append writes next which are still missing; 0 when all are written.
  uint64_t BytesLeftInTensor() const;

  // Checks that every tensor is complete, flushes, and renames the file to its name.
  void Finish();

  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t written_bytes() const;

 private:
  struct Planned {
    uint64_t offset;
    uint64_t bytes;
  };

  std::string path_;
  std::string temporary_path_;
  std::unique_ptr<FileWriter> file_;
  std::vector<Planned> planned_;  // offsets from the start of the file
  size_t next_ = 0;
  uint64_t done_in_tensor_ = 0;
  uint64_t total_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace hearth
