#include "import/floats_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/half.h"

namespace hearth {
namespace {

// Numbers that are converted at a time.
constexpr size_t kPieceNumbers = size_t{16} << 10;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

double Widened(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(Load<uint16_t>(from));
    case DType::kBF16:
      return Bf16ToFloat(Load<uint16_t>(from));
    case DType::kF32:
      return Load<float>(from);
    default:
      return Load<double>(from);
  }
}

class FloatsReader final : public BlockReader {
 public:
  FloatsReader(const BlockReader& source, const NumberRun& run, std::string name)
      : source_(source),
        run_(run),
        number_bytes_(InfoOf(run.dtype).block_bytes),
        name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return run_.count * sizeof(float); }

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
    source_.WillRead(InSource(offset), BytesInSource(bytes));
  }
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override {
    source_.DropCached(InSource(offset), BytesInSource(bytes));
  }

 private:
  uint64_t BytesInSource(uint64_t bytes) const { return bytes / sizeof(float) * number_bytes_; }
  uint64_t InSource(uint64_t offset) const { return run_.begin + BytesInSource(offset); }

  void ReadFloats(uint64_t first, std::vector<float>& out) const {
    std::vector<std::byte> numbers(out.size() * number_bytes_);
    source_.ReadAt(run_.begin + first * number_bytes_, numbers);
    for (size_t i = 0; i < out.size(); ++i) {
      const double number = Widened(numbers.data() + i * number_bytes_, run_.dtype);
      out[i] = static_cast<float>(number);
      if (std::isfinite(number) && !std::isfinite(out[i])) {
        throw Error(ErrorCode::kUnsupported, name_, "a number",
                    "one within the range of 32-bit floats", std::to_string(number));
      }
      out[i] += run_.plus;
    }
  }

  const BlockReader& source_;
  const NumberRun run_;
  const uint64_t number_bytes_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<BlockReader> MakeFloatsReader(const BlockReader& source, const NumberRun& run,
                                              std::string name) {
  return std::make_unique<FloatsReader>(source, run, std::move(name));
}

}  // namespace hearth
