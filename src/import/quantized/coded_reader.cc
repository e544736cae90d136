#include "import/quantized/coded_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth {

class DecodedRows {
 public:
  using Rows = std::shared_ptr<const std::vector<std::byte>>;

  Rows Find(const void* reader, uint64_t piece) {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.reader == reader && entry.piece == piece) return entry.rows;
    }
    return nullptr;
  }
  void Put(const void* reader, uint64_t piece, Rows rows) {
    const std::lock_guard lock(mutex_);
    entries_.push_back({reader, piece, std::move(rows)});
    if (entries_.size() > kMost) entries_.pop_front();
  }

 private:
  // A row of q and the one half a head away may lie in two pieces, for each of some threads.
  static constexpr size_t kMost = 8;
  struct Entry {
    const void* reader;
    uint64_t piece;
    Rows rows;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

namespace {

constexpr uint64_t kBlock = 32;
// Weights that are decoded at a time. GPTQ and AWQ store columns: the more rows, the longer reads.
constexpr uint64_t kPieceWeights = uint64_t{512} << 10;

uint64_t RowsAtATime(const CodeShape& shape) {
  return std::clamp<uint64_t>(kPieceWeights / shape.cols, 1, shape.rows);
}

void PutCode(BlockQ4_0& block, size_t i, int code) {
  block.qs[i % 16] = static_cast<uint8_t>(block.qs[i % 16] | (code + 8) << (4 * (i / 16)));
}
void PutCode(BlockQ5_0& block, size_t i, int code) {
  const int stored = code + 16;
  block.qs[i % 16] = static_cast<uint8_t>(block.qs[i % 16] | (stored & 15) << (4 * (i / 16)));
  block.qh[i / 8] = static_cast<uint8_t>(block.qh[i / 8] | (stored >> 4) << (i % 8));
}
void PutCode(BlockQ8_0& block, size_t i, int code) { block.qs[i] = static_cast<int8_t>(code); }

class CodedReader final : public BlockReader {
 public:
  CodedReader(std::unique_ptr<CodedMatrix> matrix, std::shared_ptr<DecodedRows> decoded)
      : matrix_(std::move(matrix)),
        decoded_(std::move(decoded)),
        dtype_(StoredAs(shape())),
        row_bytes_(RowBytes(dtype_, shape().cols)),
        piece_rows_(RowsAtATime(shape())) {}

  const std::string& name() const override { return shape().name; }
  uint64_t size_bytes() const override { return shape().rows * row_bytes_; }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_bytes() || out.size() > size_bytes() - offset) {
      throw Error(ErrorCode::kCorrupt, name(), "read", "a range inside", "another");
    }
    const uint64_t piece_bytes = piece_rows_ * row_bytes_;
    while (!out.empty()) {
      const uint64_t piece = offset / piece_bytes, in_piece = offset % piece_bytes;
      const uint64_t bytes = std::min(piece_bytes, size_bytes() - piece * piece_bytes);
      const size_t count = std::min<size_t>(out.size(), bytes - in_piece);
      if (count == bytes) {
        Decode(piece, out.first(count));
      } else {
        const DecodedRows::Rows rows = Decoded(piece, bytes);
        std::memcpy(out.data(), rows->data() + in_piece, count);
      }
      out = out.subspan(count);
      offset += count;
    }
  }

  // Whole tensors: numbers of a row may lie anywhere in them.
  void WillRead(uint64_t offset, uint64_t) const noexcept override {
    if (offset != 0) return;
    for (const OpenTensor* part : matrix_->parts()) {
      part->source->WillRead(part->tensor.offset, part->tensor.bytes);
    }
  }
  // They are forgotten with the last row.
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override {
    if (offset + bytes < size_bytes()) return;
    for (const OpenTensor* part : matrix_->parts()) {
      part->source->DropCached(part->tensor.offset, part->tensor.bytes);
    }
  }

 private:
  const CodeShape& shape() const { return matrix_->shape(); }

  DecodedRows::Rows Decoded(uint64_t piece, uint64_t bytes) const {
    if (DecodedRows::Rows found = decoded_->Find(this, piece)) return found;
    auto made = std::make_shared<std::vector<std::byte>>(bytes);
    Decode(piece, *made);
    decoded_->Put(this, piece, made);
    return made;
  }

  void Decode(uint64_t piece, std::span<std::byte> out) const {
    CodedRows rows;
    rows.first = piece * piece_rows_;
    rows.count = out.size() / row_bytes_;
    matrix_->Read(&rows);
    switch (dtype_) {
      case DType::kQ4_0:
        return EncodeBlocks<BlockQ4_0>(rows, out);
      case DType::kQ5_0:
        return EncodeBlocks<BlockQ5_0>(rows, out);
      case DType::kQ8_0:
        return EncodeBlocks<BlockQ8_0>(rows, out);
      default:
        return EncodeHalves(rows, out);
    }
  }

  template <typename Block>
  void EncodeBlocks(const CodedRows& rows, std::span<std::byte> out) const {
    const CodeShape& s = shape();
    const uint64_t blocks = s.cols / kBlock;
    for (uint64_t r = 0; r < rows.count; ++r) {
      for (uint64_t b = 0; b < blocks; ++b) {
        Block block = {};
        block.d = Half(rows.scales[r * s.groups + s.GroupOf(b * kBlock)]);
        const float* const codes = rows.codes.data() + r * s.cols + b * kBlock;
        for (size_t i = 0; i < kBlock; ++i) PutCode(block, i, InRange(codes[i]));
        std::memcpy(out.data() + (r * blocks + b) * sizeof(Block), &block, sizeof(Block));
      }
    }
  }

  void EncodeHalves(const CodedRows& rows, std::span<std::byte> out) const {
    const CodeShape& s = shape();
    for (uint64_t r = 0; r < rows.count; ++r) {
      for (uint64_t c = 0; c < s.cols; ++c) {
        const uint64_t i = r * s.cols + c;
        const uint16_t half = Half(rows.scales[r * s.groups + s.GroupOf(c)] * rows.codes[i]);
        std::memcpy(out.data() + i * sizeof(half), &half, sizeof(half));
      }
    }
  }

  int InRange(float code) const {
    const int whole = static_cast<int>(code);
    if (whole >= shape().least && whole <= shape().most) return whole;
    throw Error(ErrorCode::kCorrupt, name(), "codes less their zeros",
                fmt::format("{} to {}, as quantization_config says", shape().least, shape().most),
                std::to_string(whole));
  }

  uint16_t Half(float value) const {
    if (std::isnan(value)) {
      throw Error(ErrorCode::kCorrupt, name(), "holds weights that are no numbers (NaN)");
    }
    const uint16_t half = FloatToHalf(value);
    if (std::isfinite(HalfToFloat(half))) return half;
    throw Error(ErrorCode::kUnsupported, name(), "weights", "numbers within the range of F16",
                fmt::format("{}", value));
  }

  const std::unique_ptr<CodedMatrix> matrix_;
  const std::shared_ptr<DecodedRows> decoded_;
  const DType dtype_;
  const uint64_t row_bytes_;
  const uint64_t piece_rows_;
};

}  // namespace

DType StoredAs(const CodeShape& shape) {
  const bool is_float = shape.least == 0 && shape.most == 0;
  const bool blocks_fit = shape.order.empty() && shape.cols % kBlock == 0 &&
                          (shape.groups == 1 || shape.group_size % kBlock == 0);
  if (is_float || !blocks_fit) return DType::kF16;
  const auto holds = [&](int half) { return shape.least >= -half && shape.most < half; };
  if (holds(8)) return DType::kQ4_0;
  if (holds(16)) return DType::kQ5_0;
  return holds(128) ? DType::kQ8_0 : DType::kF16;
}

std::shared_ptr<DecodedRows> MakeDecodedRows() { return std::make_shared<DecodedRows>(); }

std::unique_ptr<BlockReader> MakeCodedReader(std::unique_ptr<CodedMatrix> matrix,
                                             std::shared_ptr<DecodedRows> decoded) {
  return std::make_unique<CodedReader>(std::move(matrix), std::move(decoded));
}

}  // namespace hearth
