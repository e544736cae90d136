#include "prepare/import/narrowing_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

// Doubles that are converted at a time.
constexpr size_t kPieceNumbers = size_t{16} << 10;

class NarrowingReader final : public BlockReader {
 public:
  NarrowingReader(const BlockReader& source, uint64_t begin, uint64_t bytes, std::string name)
      : source_(source), begin_(begin), numbers_(bytes / sizeof(double)), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return numbers_ * sizeof(float); }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_bytes() || out.size() > size_bytes() - offset) {
      throw Error(ErrorCode::kCorrupt, name_, "read", "a range inside", "another");
    }
    std::vector<float> floats;
    while (!out.empty()) {
      const uint64_t first = offset / sizeof(float);
      const uint64_t skipped = offset % sizeof(float);
      const uint64_t wanted = (skipped + out.size() + sizeof(float) - 1) / sizeof(float);
      floats.resize(static_cast<size_t>(std::min<uint64_t>(wanted, kPieceNumbers)));
      ReadFloats(first, floats);
      const size_t count = std::min<size_t>(out.size(), floats.size() * sizeof(float) - skipped);
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(floats.data()) + skipped, count);
      out = out.subspan(count);
      offset += count;
    }
  }

  void WillRead(uint64_t offset, uint64_t bytes) const noexcept override {
    source_.WillRead(begin_ + offset * kRatio, bytes * kRatio);
  }
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override {
    source_.DropCached(begin_ + offset * kRatio, bytes * kRatio);
  }

 private:
  static constexpr uint64_t kRatio = sizeof(double) / sizeof(float);

  void ReadFloats(uint64_t first, std::vector<float>& out) const {
    std::vector<double> doubles(out.size());
    source_.ReadAt(begin_ + first * sizeof(double), std::as_writable_bytes(std::span(doubles)));
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(doubles[i]);
      if (std::isfinite(doubles[i]) && !std::isfinite(out[i])) {
        throw Error(ErrorCode::kUnsupported, name_, "a number",
                    "one within the range of 32-bit floats", std::to_string(doubles[i]));
      }
    }
  }

  const BlockReader& source_;
  const uint64_t begin_;
  const uint64_t numbers_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<BlockReader> MakeNarrowingReader(const BlockReader& source, uint64_t begin,
                                                 uint64_t bytes, std::string name) {
  return std::make_unique<NarrowingReader>(source, begin, bytes, std::move(name));
}

}  // namespace hearth
