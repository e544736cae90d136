// A matrix of published codes, less their zeros, with a scale for each group of them. Internal to
// import/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/safetensors.h"
#include "storage/block_reader.h"

namespace hearth {

// A tensor of a folder. `source` holds it and outlives whatever reads it.
struct OpenTensor {
  const BlockReader* source = nullptr;
  SafetensorsTensor tensor;
};

// Numbers from `first` on, in the tensor's order: I32 as words; F32, F16 or BF16 as floats.
void ReadWords(const OpenTensor& from, uint64_t first, std::span<uint32_t> out);
void ReadFloats(const OpenTensor& from, uint64_t first, std::span<float> out);

struct CodeShape {
  std::string name;             // for messages
  uint64_t rows = 0;            // outputs
  uint64_t cols = 0;            // inputs
  uint64_t groups = 1;          // scales of a row
  uint64_t group_size = 0;      // columns of a group, where they lie together
  std::vector<uint32_t> order;  // the group of each column, where they do not
  // What codes may be; both 0 for 8-bit floats, which are no whole numbers.
  int least = 0;
  int most = 0;
  bool has_half_scales = false;  // F16 holds the scales exactly

  uint64_t GroupOf(uint64_t col) const {
    return order.empty() ? col / group_size : uint64_t{order[col]};
  }
};

// Some rows: the weight in row r and column c is scales[r][shape.GroupOf(c)] * codes[r][c].
struct CodedRows {
  uint64_t first = 0;
  uint64_t count = 0;
  std::vector<float> codes;   // [count][cols]
  std::vector<float> scales;  // [count][groups]
};

// Immutable and thread-safe.
class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;
  CodedMatrix(const CodedMatrix&) = delete;
  CodedMatrix& operator=(const CodedMatrix&) = delete;

  const CodeShape& shape() const { return shape_; }
  // Fills codes and scales of `count` rows from `first` on. Throws what reading throws.
  virtual void Read(CodedRows* rows) const = 0;
  virtual std::vector<const OpenTensor*> parts() const = 0;

 protected:
  explicit CodedMatrix(CodeShape shape) : shape_(std::move(shape)) {}

 private:
  CodeShape shape_;
};

}  // namespace hearth
