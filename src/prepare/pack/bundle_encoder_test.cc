#include "prepare/pack/bundle_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dequantize.h"

namespace hearth {
namespace {

constexpr DType kBundled[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16};

std::vector<float> RandomRow(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.01f, 0.3f);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& w : row) w = normal(random);
  return row;
}

std::vector<std::byte> Stored(DType dtype, const std::vector<float>& row) {
  std::vector<std::byte> out(RowBytes(dtype, row.size()));
  kernels::Quantize(dtype, row.data(), static_cast<int64_t>(row.size()), out.data());
  return out;
}

std::vector<std::byte> Converted(DType from, const std::vector<std::byte>& row, int64_t n,
                                 DType to) {
  std::vector<std::byte> out(RowBytes(to, static_cast<size_t>(n)));
  kernels::Convert(from, row.data(), n, to, out.data());
  return out;
}

std::vector<std::byte> PartOf(const BundleLayout& layout, BundleRole role, int64_t hidden,
                              const std::vector<std::byte>& bundle) {
  const BundlePart& part = layout.Part(role);
  std::vector<std::byte> row(RowBytes(part.dtype, static_cast<size_t>(hidden)));
  ReadBundleRow(part, hidden, bundle, row.data());
  return row;
}

// Same type: the very bytes. Another type: what Convert makes of it.
TEST(BundleEncoderTest, EveryTypeAndSizeReadsBack) {
  for (const DType dtype : kBundled) {
    for (const DType stored :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
      for (const int64_t hidden : {32, 64, 96, 160, 480, 512, 544, 1536}) {
        SCOPED_TRACE(testing::Message()
                     << NameOf(stored) << " in " << NameOf(dtype) << " of " << hidden);
        BundleEncoder encoder(MakeBundleLayout(dtype, hidden), hidden);
        const auto seed = static_cast<uint32_t>(hidden);
        const std::vector<std::byte> gate = Stored(stored, RandomRow(hidden, seed));
        const std::vector<std::byte> up = Stored(stored, RandomRow(hidden, seed + 1));
        const std::vector<float> down = RandomRow(hidden, seed + 2);
        // What was in the buffer before must not show.
        std::vector<std::byte> bundle(encoder.layout().stride, std::byte{0xa5});
        encoder.Encode({{stored, gate.data()}, {stored, up.data()}, FloatRow(down.data())}, bundle);
        EXPECT_TRUE(BundleIsIntact(encoder.layout(), bundle));
        EXPECT_EQ(PartOf(encoder.layout(), BundleRole::kGate, hidden, bundle),
                  Converted(stored, gate, hidden, dtype));
        EXPECT_EQ(PartOf(encoder.layout(), BundleRole::kUp, hidden, bundle),
                  Converted(stored, up, hidden, dtype));
        EXPECT_EQ(PartOf(encoder.layout(), BundleRole::kDown, hidden, bundle), Stored(dtype, down));
      }
    }
  }
}

TEST(BundleEncoderTest, BytesBetweenPartsAreZeros) {
  const int64_t hidden = 160;  // padding lanes, and zeros before the split and the end
  for (const DType dtype : kBundled) {
    BundleEncoder encoder(MakeBundleLayout(dtype, hidden), hidden);
    const std::vector<float> row(static_cast<size_t>(hidden), 1.5f);
    std::vector<std::byte> bundle(encoder.layout().stride, std::byte{0xff});
    encoder.Encode({FloatRow(row.data()), FloatRow(row.data()), FloatRow(row.data())}, bundle);
    for (const BundlePart& part : encoder.layout().parts) {
      std::memset(bundle.data() + part.offset, 0, part.bytes);
    }
    EXPECT_EQ(bundle, std::vector<std::byte>(encoder.layout().stride)) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace hearth
