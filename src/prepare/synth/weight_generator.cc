#include "prepare/synth/weight_generator.h"

#include <cmath>
#include <cstring>

#include "base/random_words.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth {
namespace {

// The quantile function z(p) of the normal distribution solves z' = 1/f, f' = -z, f being the
// density at z. Solving that by Runge-Kutta steps takes +, *, / alone, which round alike on every
// machine, where a libm's erf and log need not.
class NormalQuantiles {
 public:
  double z() const { return z_; }

  void Advance(double dp) {
    constexpr int kRungeKuttaSteps = 64;  // the tail bends sharply; more change no float
    const double h = dp / kRungeKuttaSteps;
    for (int i = 0; i < kRungeKuttaSteps; ++i) {
      const Slope a = SlopeAt(z_, density_);
      const Slope b = SlopeAt(z_ + h / 2 * a.z, density_ + h / 2 * a.density);
      const Slope c = SlopeAt(z_ + h / 2 * b.z, density_ + h / 2 * b.density);
      const Slope d = SlopeAt(z_ + h * c.z, density_ + h * c.density);
      z_ += h / 6 * (a.z + 2 * b.z + 2 * c.z + d.z);
      density_ += h / 6 * (a.density + 2 * b.density + 2 * c.density + d.density);
    }
  }

 private:
  struct Slope {
    double z;
    double density;
  };
  static Slope SlopeAt(double z, double density) { return {1 / density, -z}; }

  double z_ = 0;                             // at p = 1/2
  double density_ = 0.39894228040143267794;  // 1 / sqrt(2 pi)
};

// Variance of the sum of two uniform numbers from 0 to levels - 1.
constexpr double TriangleVariance(int levels) { return (levels * levels - 1) / 6.0; }

// Mean squares of the codes of a block about zero (Q4_1: about 7.5).
constexpr double kQ4_0Square = (31 * TriangleVariance(8) + 64) / 32;
constexpr double kQ4_1Square = (30 * (TriangleVariance(8) + 0.25) + 2 * 56.25) / 32;
constexpr double kQ8_0Square = (31 * TriangleVariance(128) + 127 * 127) / 32;

constexpr size_t kNumScales = 256;  // picked by one random byte
constexpr double kScaleSpread = 0.3;

// Block scales for codes of the given mean square, evenly spread about their mean.
class ScaleTable {
 public:
  ScaleTable(double std, double mean_code_square) {
    // A factor uniform in 1 +- s has the mean square 1 + s^2 / 3.
    const double mean = std / std::sqrt(mean_code_square * (1 + kScaleSpread * kScaleSpread / 3));
    for (size_t i = 0; i < kNumScales; ++i) {
      const double position = (2 * static_cast<double>(i) + 1) / kNumScales - 1;  // -1 to 1
      scales_[i] = FloatToHalf(static_cast<float>(mean * (1 + kScaleSpread * position)));
    }
  }

  HalfBits Pick(uint64_t random_byte) const { return scales_[random_byte & 0xff]; }

 private:
  std::array<HalfBits, kNumScales> scales_;
};

// What one random word decides of a block beside its codes; each field has bits of its own.
struct BlockChoices {
  explicit BlockChoices(uint64_t word)
      : scale(word & 0xff), position((word >> 8) & 31), negative((word >> 16) & 1) {}

  uint64_t scale;     // index into the scale table
  uint64_t position;  // of the extreme weight
  uint64_t negative;  // 0 or 1
};

constexpr uint64_t kLow3Bits = 0x7777777777777777u;  // of every 4-bit code
constexpr uint64_t kOneEach = 0x1111111111111111u;

// 16 codes of 4 bits, 0 to 14 each.
uint64_t TriangleNibbles(RandomWords& random) {
  return (random.Next() & kLow3Bits) + (random.Next() & kLow3Bits);
}

// The blocks that `out` has room for.
template <typename Block>
std::span<Block> BlocksOf(std::span<std::byte> out) {
  return {reinterpret_cast<Block*>(out.data()), out.size() / sizeof(Block)};
}

void FillQ4_0(RandomWords random, double std, std::span<BlockQ4_0> out) {
  const ScaleTable scales(std, kQ4_0Square);
  for (BlockQ4_0& block : out) {
    // 1 to 15; the scale's sign makes the one code 0 symmetrical.
    const uint64_t codes[2] = {TriangleNibbles(random) + kOneEach,
                               TriangleNibbles(random) + kOneEach};
    const BlockChoices choices(random.Next());
    block.d = static_cast<HalfBits>(scales.Pick(choices.scale) | choices.negative << 15);
    std::memcpy(block.qs, codes, sizeof(block.qs));
    // In the output, not before: patching the words takes more than twice as long.
    block.qs[choices.position & 15] &= choices.position < 16 ? 0xf0 : 0x0f;
  }
}

void FillQ4_1(RandomWords random, double std, std::span<BlockQ4_1> out) {
  const ScaleTable scales(std, kQ4_1Square);
  const ScaleTable minimums(7.5 * std, kQ4_1Square);  // 7.5 times the scales, rounded once
  for (BlockQ4_1& block : out) {
    // A third number of one bit centres the codes between 7 and 8.
    const uint64_t halves = random.Next();
    const uint64_t codes[2] = {TriangleNibbles(random) + (halves & kOneEach),
                               TriangleNibbles(random) + (halves >> 1 & kOneEach)};
    const BlockChoices choices(random.Next());
    block.d = scales.Pick(choices.scale);
    block.m = static_cast<HalfBits>(minimums.Pick(choices.scale) | 0x8000);
    std::memcpy(block.qs, codes, sizeof(block.qs));
    // Codes i and i + 16 share a byte: one of them becomes 0, the other 15.
    block.qs[choices.position & 15] = choices.position < 16 ? 0xf0 : 0x0f;
  }
}

void FillQ8_0(RandomWords random, double std, std::span<BlockQ8_0> out) {
  constexpr uint64_t kLow7Bits = 0x7f7f7f7f7f7f7f7fu;  // of every code
  const ScaleTable scales(std, kQ8_0Square);
  for (BlockQ8_0& block : out) {
    uint64_t codes[4];
    for (uint64_t& word : codes) {
      const uint64_t sums = (random.Next() & kLow7Bits) + (random.Next() & kLow7Bits);  // 0..254
      word = sums ^ kLow7Bits;  // 127 - sum, as int8
    }
    const BlockChoices choices(random.Next());
    block.d = scales.Pick(choices.scale);
    std::memcpy(block.qs, codes, sizeof(block.qs));
    block.qs[choices.position] = choices.negative != 0 ? -127 : 127;
  }
}

}  // namespace

bool CanSynthesize(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      return true;
    default:
      return false;
  }
}

WeightGenerator::WeightGenerator(uint64_t seed) : seed_(seed) {
  constexpr size_t kHalf = kNumQuantiles / 2;
  NormalQuantiles normal;
  std::array<double, kHalf> upper;
  double squares = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    // The middles of intervals of probability 1/4096, from the median up.
    normal.Advance((i == 0 ? 0.5 : 1.0) / kNumQuantiles);
    upper[i] = normal.z();
    squares += 2 * upper[i] * upper[i];
  }
  const double to_unit_variance = std::sqrt(kNumQuantiles / squares);
  for (size_t i = 0; i < kHalf; ++i) {
    quantiles_[kHalf + i] = static_cast<float>(upper[i] * to_unit_variance);
    quantiles_[kHalf - 1 - i] = -quantiles_[kHalf + i];
  }
}

template <typename Stored, typename FromFloat>
void WeightGenerator::FillFloats(WeightDistribution distribution, uint64_t stream,
                                 std::span<std::byte> out, FromFloat from_float) const noexcept {
  std::array<Stored, kNumQuantiles> values;
  for (size_t i = 0; i < kNumQuantiles; ++i) {
    values[i] = from_float(
        static_cast<float>(distribution.mean + distribution.std * double{quantiles_[i]}));
  }
  constexpr size_t kPerWord = 4;  // 12 of each 16 random bits pick a quantile
  constexpr uint64_t kMask = kNumQuantiles - 1;
  RandomWords random(stream);
  const size_t count = out.size() / sizeof(Stored);
  for (size_t at = 0; at < count; at += kPerWord) {
    const uint64_t word = random.Next();
    const Stored four[kPerWord] = {values[word & kMask], values[word >> 16 & kMask],
                                   values[word >> 32 & kMask], values[word >> 48 & kMask]};
    std::memcpy(out.data() + at * sizeof(Stored), four,
                at + kPerWord <= count ? sizeof(four) : (count - at) * sizeof(Stored));
  }
}

void WeightGenerator::Fill(DType dtype, WeightDistribution distribution, uint64_t tensor,
                           uint64_t chunk, std::span<std::byte> out) const noexcept {
  const uint64_t stream = StreamOf(seed_, tensor, chunk);
  const double std = distribution.std;
  switch (dtype) {
    case DType::kF32:
      return FillFloats<float>(distribution, stream, out, [](float f) { return f; });
    case DType::kF16:
      return FillFloats<uint16_t>(distribution, stream, out, FloatToHalf);
    case DType::kBF16:
      return FillFloats<uint16_t>(distribution, stream, out, FloatToBf16);
    case DType::kQ4_0:
      return FillQ4_0(RandomWords(stream), std, BlocksOf<BlockQ4_0>(out));
    case DType::kQ4_1:
      return FillQ4_1(RandomWords(stream), std, BlocksOf<BlockQ4_1>(out));
    case DType::kQ8_0:
      return FillQ8_0(RandomWords(stream), std, BlocksOf<BlockQ8_0>(out));
    default:
      return;  // CanSynthesize says no
  }
}

}  // namespace hearth
