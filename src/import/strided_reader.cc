#include "import/strided_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

// What is read of the source at a time, in numbers.
constexpr uint64_t kStridedNumbers = uint64_t{64} << 10;
constexpr uint64_t kLineBytes = 64;  // of a processor's cache

class StridedReader final : public BlockReader {
 public:
  StridedReader(const BlockReader& source, const Strides& strides, std::string name)
      : source_(source), strides_(strides), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override {
    return strides_.matrices * strides_.rows * strides_.cols * strides_.number_bytes;
  }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_bytes() || out.size() > size_bytes() - offset) {
      throw Error(ErrorCode::kCorrupt, name_, "read", "a range inside", "another");
    }
    const uint64_t row_bytes = strides_.cols * strides_.number_bytes;
    std::vector<std::byte> one_row;
    while (!out.empty()) {
      const uint64_t row = offset / row_bytes;
      const uint64_t in_row = offset % row_bytes;
      uint64_t done = 0;
      if (in_row == 0 && out.size() >= row_bytes) {
        const uint64_t whole =
            std::min<uint64_t>(out.size() / row_bytes, strides_.rows - row % strides_.rows);
        done = whole * row_bytes;
        ReadRows(row, whole, out.data());
      } else {
        one_row.resize(row_bytes);
        ReadRows(row, 1, one_row.data());
        done = std::min<uint64_t>(out.size(), row_bytes - in_row);
        std::memcpy(out.data(), one_row.data() + in_row, done);
      }
      out = out.subspan(done);
      offset += done;
    }
  }

  // Whole matrices: numbers of a row may lie anywhere in theirs.
  void WillRead(uint64_t offset, uint64_t bytes) const noexcept override {
    const uint64_t matrix_bytes = size_bytes() / strides_.matrices;
    for (uint64_t m = offset / matrix_bytes; m * matrix_bytes < offset + bytes; ++m) {
      source_.WillRead(AtNumber(m * strides_.matrix_step), Reach() * strides_.number_bytes);
    }
  }
  // A matrix is forgotten with the last of its rows.
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override {
    const uint64_t matrix_bytes = size_bytes() / strides_.matrices;
    for (uint64_t m = offset / matrix_bytes; (m + 1) * matrix_bytes <= offset + bytes; ++m) {
      source_.DropCached(AtNumber(m * strides_.matrix_step), Reach() * strides_.number_bytes);
    }
  }

 private:
  uint64_t AtNumber(uint64_t number) const {
    return strides_.begin_bytes + number * strides_.number_bytes;
  }
  // Numbers of the source from the first to the last of one matrix.
  uint64_t Reach() const {
    return (strides_.rows - 1) * strides_.row_step + (strides_.cols - 1) * strides_.col_step + 1;
  }

  // `count` rows of one matrix; `row` counts those of all.
  void ReadRows(uint64_t row, uint64_t count, std::byte* out) const {
    const uint64_t first =
        row / strides_.rows * strides_.matrix_step + row % strides_.rows * strides_.row_step;
    if (strides_.col_step <= strides_.row_step) {
      for (uint64_t r = 0; r < count; ++r) {
        ReadRun({first + r * strides_.row_step, strides_.cols, strides_.col_step},
                out + r * strides_.cols * strides_.number_bytes);
      }
      return;
    }
    // Some columns at a time, so that what is written of a row fills a line of the cache.
    const uint64_t at_a_time = std::max<uint64_t>(1, kLineBytes / strides_.number_bytes);
    std::vector<std::byte> columns(at_a_time * count * strides_.number_bytes);
    for (uint64_t c = 0; c < strides_.cols; c += at_a_time) {
      const uint64_t width = std::min(at_a_time, strides_.cols - c);
      for (uint64_t i = 0; i < width; ++i) {
        ReadRun({first + (c + i) * strides_.col_step, count, strides_.row_step},
                columns.data() + i * count * strides_.number_bytes);
      }
      PutColumns(columns.data(), {c, width, count}, out);
    }
  }

  // Columns that lie one after another, to the rows of `out`.
  struct Columns {
    uint64_t first;
    uint64_t width;
    uint64_t rows;
  };
  void PutColumns(const std::byte* columns, const Columns& of, std::byte* out) const {
    const uint64_t bytes = strides_.number_bytes;
    for (uint64_t r = 0; r < of.rows; ++r) {
      std::byte* row = out + (r * strides_.cols + of.first) * bytes;
      for (uint64_t i = 0; i < of.width; ++i) {
        CopyNumber(columns + (i * of.rows + r) * bytes, row + i * bytes);
      }
    }
  }

  // The usual sizes are known to the compiler.
  void CopyNumber(const std::byte* from, std::byte* to) const {
    if (strides_.number_bytes == sizeof(float)) {
      std::memcpy(to, from, sizeof(float));
    } else if (strides_.number_bytes == sizeof(uint16_t)) {
      std::memcpy(to, from, sizeof(uint16_t));
    } else {
      std::memcpy(to, from, strides_.number_bytes);
    }
  }

  struct Run {
    uint64_t first;
    uint64_t count;
    uint64_t step;
  };

  // The numbers of a run, one after another.
  void ReadRun(const Run& run, std::byte* out) const {
    const uint64_t bytes = strides_.number_bytes;
    if (run.step == 1) {
      source_.ReadAt(AtNumber(run.first), {out, run.count * bytes});
      return;
    }
    const uint64_t at_a_time = std::max<uint64_t>(1, kStridedNumbers / run.step);
    std::vector<std::byte> piece;
    for (uint64_t i = 0; i < run.count; i += at_a_time) {
      const uint64_t count = std::min(at_a_time, run.count - i);
      piece.resize(((count - 1) * run.step + 1) * bytes);
      source_.ReadAt(AtNumber(run.first + i * run.step), piece);
      for (uint64_t k = 0; k < count; ++k) {
        CopyNumber(piece.data() + k * run.step * bytes, out + (i + k) * bytes);
      }
    }
  }

  const BlockReader& source_;
  const Strides strides_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<BlockReader> MakeStridedReader(const BlockReader& source, const Strides& strides,
                                               std::string name) {
  return std::make_unique<StridedReader>(source, strides, std::move(name));
}

}  // namespace hearth
