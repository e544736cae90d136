// A matrix that stays in its file, of which few rows are used at a time: token embeddings (M §4.1).
// Rows that were used lately are kept in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "ops/compute.h"
#include "storage/async/async_reader.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace hearth {

// Where a matrix lies, as its file stores it: row after row.
struct RowTableSpec {
  std::string name;     // of the tensor, for messages
  uint64_t offset = 0;  // in the file, of row 0
  DType dtype = DType::kF32;
  int64_t cols = 0;
  int64_t rows = 0;
  int64_t most_ids = 0;  // of one call of LookUp

  size_t row_bytes() const { return RowBytes(dtype, static_cast<size_t>(cols)); }
  // All of it.
  uint64_t bytes() const { return static_cast<uint64_t>(rows) * row_bytes(); }
};

// What has been looked up so far.
struct RowTableCounts {
  uint64_t found = 0;  // rows, in memory
  uint64_t read = 0;   // rows
  double read_seconds = 0;
};

// One thread at a time.
class RowTable {
 public:
  // Rows kept, where one call does not need more; reads at once.
  static constexpr int64_t kKeptRows = 1024;
  static constexpr int kDepth = 32;

  // Charges ChargedBytes as "embedding rows". `file` holds all rows. Throws Error(kOutOfBudget),
  // Error(kIo).
  RowTable(Budget& budget, const RowTableSpec& spec, std::unique_ptr<AsyncFile> file);

  static uint64_t ChargedBytes(const RowTableSpec& spec);

  // Row i of `out` becomes row ids[i], dequantized, as LookUpRows does it. At most most_ids. Throws
  // Error(kIo), which names the row that could not be read; then `out` is unspecified.
  void LookUp(Compute& compute, std::span<const int32_t> ids, FloatView out);

  const RowTableSpec& spec() const { return spec_; }
  RowTableCounts counts() const { return counts_; }

 private:
  std::byte* slot(size_t index) { return kept_.data() + index * spec_.row_bytes(); }
  // Gives every id a slot; those whose rows are not there yet are missing_.
  void TakeSlots(std::span<const int32_t> ids);
  void Read();
  void Forget() noexcept;

  const RowTableSpec spec_;
  std::unique_ptr<AsyncFile> file_;
  std::unique_ptr<ReadQueue> queue_;
  Buffer kept_;               // rows as they are stored
  Buffer bounce_;             // kDepth places for a row with what alignment adds
  std::list<int32_t> order_;  // ids of kept rows, those used last first
  struct Kept {
    size_t slot;
    std::list<int32_t>::iterator place;
  };
  std::unordered_map<int32_t, Kept> of_id_;
  std::vector<int32_t> missing_;  // ids
  std::vector<int32_t> slots_;    // of the ids that were asked for
  RowTableCounts counts_;
};

}  // namespace hearth
