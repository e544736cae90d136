// Products of weight tiles of every table against the scalar oracle, and the promise that the
// result of a row and a token does not depend on how the work was split.
#include <memory>

#include "kernels/dispatch.h"
#include "kernels/solver/tile_solver.h"
#include "kernels/stored/unpack.h"
#include "kernels/test_util.h"
#include "kernels/tile_pack.h"
#include "kernels/weight_tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;

// One product with its operands on guarded pages. Strides leave gaps, which must survive.
class Problem {
 public:
  Problem(DType dtype, int64_t blocks, int64_t rows, int64_t tokens, DataKind kind, uint32_t seed)
      : dtype_(dtype),
        layout_(dtype, testing::WholeBlocks(dtype, blocks) * 32),
        rows_(rows),
        tokens_(tokens) {
    std::mt19937 random(seed);
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<std::byte> row =
          testing::RandomBlocks(dtype, layout_.blocks * 32, random, kind);
      weights_.insert(weights_.end(), row.begin(), row.end());
    }
    tiles_ = std::make_unique<GuardedArray<std::byte>>(
        static_cast<int64_t>(layout_.matrix_bytes(rows)),
        seed % 2 == 0 ? testing::Placement::kAtEnd : testing::Placement::kAtStart);
    PackTiles(dtype, layout_, weights_.data(), row_bytes(), rows, tiles_->data());
    x_ = testing::RandomFloats(random, tokens * layout_.blocks * 32, kind);
  }

  const TileLayout& layout() const { return layout_; }
  const std::byte* tile(int64_t index) const {
    return tiles_->data() + static_cast<size_t>(index) * layout_.tile_bytes();
  }

  // out[t][r], computed with calls of at most `tiles_per_call` tiles and `tokens_per_call` tokens.
  std::vector<float> Run(const KernelTable& table, int64_t tiles_per_call,
                         int64_t tokens_per_call) {
    const TileChoice choice(table.tile_unit, BestSideBySide());
    return Run(table, tiles_per_call, tokens_per_call,
               [&](int64_t tokens) { return choice.For(tokens); });
  }
  // The same with the geometry that geometry_of(tokens) returns.
  template <class GeometryOf>
  std::vector<float> Run(const KernelTable& table, int64_t tiles_per_call, int64_t tokens_per_call,
                         const GeometryOf& geometry_of) {
    constexpr float kUntouched = -123.5f;
    const int64_t stride = rows_ + 3;
    const int64_t size = tokens_ == 0 ? 0 : (tokens_ - 1) * stride + rows_;
    GuardedArray<float> out(std::vector<float>(static_cast<size_t>(size), kUntouched));
    const int64_t tiles = TileLayout::TilesFor(rows_);
    for (int64_t t = 0; t < tokens_; t += tokens_per_call) {
      const int64_t tokens = std::min(tokens_per_call, tokens_ - t);
      const TileGeometry geometry = geometry_of(tokens);
      GuardedArray<BlockQ8> x(Panels(geometry.panel_tokens, t, tokens));
      for (int64_t tile = 0; tile < tiles; tile += tiles_per_call) {
        TileMatMulArgs args{};
        args.tiles = tiles_->data();
        args.tile_bytes = layout_.tile_bytes();
        args.blocks = layout_.blocks;
        args.x = x.data();
        args.tokens = tokens;
        args.out = out.data() + t * stride + tile * TileLayout::kRows;
        args.out_stride = stride;
        args.rows = rows_;
        args.tile_begin = tile;
        args.tile_end = std::min(tiles, tile + tiles_per_call);
        args.geometry = geometry;
        table.matmul_tiles[static_cast<int>(dtype_)](args);
      }
    }
    std::vector<float> result;
    for (int64_t i = 0; i < size; ++i) {
      if (i % stride < rows_) {
        result.push_back(out[i]);
      } else {
        EXPECT_EQ(out[i], kUntouched) << "wrote between the rows";
      }
    }
    return result;
  }

  // Largest error that rounding can explain for out[t][r]: every part of a block rounds a few
  // times, in proportion to the sum of magnitudes so far.
  double Tolerance(int64_t t, int64_t r) const {
    double magnitude = 0;
    for (int64_t b = 0; b < layout_.blocks; ++b) magnitude += BlockMagnitude(r, b, t);
    const double denormals = static_cast<double>(layout_.blocks) * 0x1p-140;
    const auto parts = static_cast<double>(layout_.blocks * layout_.format.scales_of_block);
    return magnitude * (3 * parts + 8) * testing::kFloatEpsilon + denormals;
  }

 private:
  size_t row_bytes() const {
    return RowBytes(dtype_, static_cast<size_t>(layout_.blocks) * size_t{32});
  }

  // The activations of tokens [first, first + count) as matmul_tiles wants them.
  std::vector<BlockQ8> Panels(int64_t panel_tokens, int64_t first, int64_t count) const {
    std::vector<BlockQ8> x(static_cast<size_t>(count * layout_.blocks));
    for (int64_t t = 0; t < count; ++t) {
      const int64_t panel = t / panel_tokens * panel_tokens;
      const int64_t size = std::min(panel_tokens, count - panel);
      Oracle().quantize_q8(x_.data() + (first + t) * layout_.blocks * 32, layout_.blocks * 32,
                           x.data() + panel * layout_.blocks + (t - panel), size);
    }
    return x;
  }
  static const KernelTable& Oracle() { return *UsableKernels({}).front(); }

  float HalfAt(size_t offset) const {
    uint16_t bits;
    std::memcpy(&bits, weights_.data() + offset, sizeof(bits));
    return HalfToFloat(bits);
  }

  // Sum of the magnitudes of what is added up for a block. A kernel may add an offset to codes and
  // take it off again, exactly, so that only the whole is rounded.
  double BlockMagnitude(int64_t r, int64_t b, int64_t t) const {
    const size_t block =
        static_cast<size_t>(r) * row_bytes() +
        RowBytes(dtype_, static_cast<size_t>(b * 32 / block_size() * block_size()));
    double sum = 0;
    float max = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const float v = x_[static_cast<size_t>((t * layout_.blocks + b) * 32 + i)];
      sum += std::abs(v);
      max = std::max(max, std::abs(v));
    }
    sum += 32.0 * max / 127;  // rounding of the activations
    const testing::HalvesOfBlock at = testing::HalvesOf(dtype_);
    const bool has_table = dtype_ == DType::kIQ4_NL || dtype_ == DType::kIQ4_XS ||
                           dtype_ == DType::kMXFP4 || dtype_ == DType::kNVFP4;
    const double largest_code = has_table ? 128 : 1 << std::min(layout_.format.code_bits, 7);
    const double largest_scale = layout_.format.has_factors() ? 128 : 1;
    double bound = ScaleAt(block) * largest_code * largest_scale * sum;
    if (at.minimum >= 0) {
      bound += std::abs(HalfAt(block + static_cast<size_t>(at.minimum))) * largest_scale * sum;
    }
    return bound;
  }
  // The largest scale of the GGUF block at `block`, or the factor of its scales.
  double ScaleAt(size_t block) const {
    const std::byte* bytes = weights_.data() + block;
    double largest = 0;
    if (dtype_ == DType::kMXFP4) return Mxfp4HalfScale(static_cast<uint8_t>(*bytes));
    if (dtype_ == DType::kNVFP4) {
      for (int i = 0; i < 4; ++i) {
        largest = std::max<double>(largest, Nvfp4HalfScale(static_cast<uint8_t>(bytes[i])));
      }
      return largest;
    }
    if (!layout_.format.is_stored()) {
      return std::abs(HalfAt(block + static_cast<size_t>(testing::HalvesOf(dtype_).scale)));
    }
    UnpackedBlock unpacked;
    UnpackBlock(dtype_, bytes, unpacked);
    const int64_t scales = layout_.format.blocks_of_group() * layout_.format.scales_of_block;
    for (int64_t i = 0; i < scales; ++i) {
      largest = std::max<double>(largest, std::abs(unpacked.scales[i]));
    }
    return largest;
  }
  int64_t block_size() const { return InfoOf(dtype_).block_size; }

  DType dtype_;
  TileLayout layout_;
  int64_t rows_;
  int64_t tokens_;
  std::vector<std::byte> weights_;
  std::unique_ptr<GuardedArray<std::byte>> tiles_;
  std::vector<float> x_;
};

class MatMulTilesTest : public testing::TableTest {
 protected:
  void Check(DType dtype, int64_t blocks, int64_t rows, int64_t tokens, DataKind kind,
             uint32_t seed) {
    SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " blocks=" << blocks << " rows=" << rows
                                      << " tokens=" << tokens << " kind=" << int(kind));
    Problem problem(dtype, blocks, rows, tokens, kind, seed);
    const std::vector<float> expected = problem.Run(oracle(), 1000, 1000);
    const std::vector<float> actual = problem.Run(table(), 1000, 1000);
    ASSERT_EQ(actual.size(), static_cast<size_t>(rows * tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const size_t i = static_cast<size_t>(t * rows + r);
        ASSERT_NEAR(actual[i], expected[i], problem.Tolerance(t, r)) << "t=" << t << " r=" << r;
      }
    }
    for (const int64_t tiles : {1, 3, 5}) {
      for (const int64_t tokens_per_call : {1, 4}) {
        const std::vector<float> pieces = problem.Run(table(), tiles, tokens_per_call);
        EXPECT_TRUE(testing::SameBits(pieces.data(), actual.data(), actual.size() * sizeof(float)))
            << "depends on the split";
      }
    }
  }

  // Every geometry, and one that panels of a profile could have, gives the solver's bits.
  void CheckGeometries(DType dtype, int64_t blocks, int64_t rows, int64_t tokens, uint32_t seed) {
    Problem problem(dtype, blocks, rows, tokens, DataKind::kNormal, seed);
    const std::vector<float> expected = problem.Run(table(), 1000, 1000);
    for (const TileGeometry& geometry : TileGeometries(table().tile_unit, tokens)) {
      const std::vector<float> actual =
          problem.Run(table(), 1000, 1000, [&](int64_t) { return geometry; });
      ASSERT_TRUE(testing::SameBits(actual.data(), expected.data(), actual.size() * sizeof(float)))
          << NameOf(dtype) << " tokens=" << tokens << " panel=" << geometry.panel_tokens
          << " tiles=" << geometry.tiles << " unpacks=" << geometry.unpacks;
    }
  }
};

// The floats of every part of a tile are the oracle's bits, wherever it begins.
TEST_P(MatMulTilesTest, FloatsOfTilesAreTheOraclesBits) {
  uint32_t seed = 5000;
  for (DType dtype : testing::TiledTypes()) {
    for (const int64_t blocks : {1, 2, 5, 8, 16, 19}) {
      Problem problem(dtype, blocks, 32, 1, DataKind::kNormal, seed++);
      for (const int64_t tile : {0, 1}) {
        for (int64_t first = 0; first < problem.layout().blocks; first += 8) {
          const int64_t count = std::min<int64_t>(8, problem.layout().blocks - first);
          const auto floats = [&](const KernelTable& from) {
            GuardedArray<float> out(count * 32 * TileLayout::kRows);
            from.tile_floats[static_cast<int>(dtype)](
                {problem.tile(tile), first, count, out.data()});
            return out.ToVector();
          };
          const std::vector<float> expected = floats(oracle()), actual = floats(table());
          ASSERT_TRUE(
              testing::SameBits(actual.data(), expected.data(), actual.size() * sizeof(float)))
              << NameOf(dtype) << " blocks=" << blocks << " first=" << first;
        }
      }
    }
  }
}

TEST_P(MatMulTilesTest, ColumnsTimesTokensAgreesWithTheOracle) {
  std::mt19937 random(6000);
  for (const int64_t count : {4, 32, 96, 256}) {
    for (const int64_t tokens : {1, 2, 3, 4, 5, 9}) {
      const int64_t stride = count + 3;
      GuardedArray<float> columns(testing::RandomFloats(random, count * 16));
      GuardedArray<float> x(testing::RandomFloats(random, (tokens - 1) * stride + count));
      const std::vector<float> before = testing::RandomFloats(random, tokens * 16);
      const auto result = [&](const KernelTable& from) {
        GuardedArray<float> out(before);
        from.columns_times_tokens({columns.data(), count, x.data(), stride, tokens, out.data()});
        return out.ToVector();
      };
      const std::vector<float> expected = result(oracle()), actual = result(table());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 1e-6 * static_cast<double>(count) + 1e-5);
      }
    }
  }
}

TEST_P(MatMulTilesTest, HasTheSameBitsWithEveryGeometry) {
  uint32_t seed = 4000;
  for (DType dtype : testing::TiledTypes()) {
    for (const int64_t tokens : {1, 2, 3, 5, 7, 13, 23, 98}) {
      CheckGeometries(dtype, 1 + (7 * tokens) % 19, tokens == 13 ? 61 : 96, tokens, seed++);
    }
  }
}

// Whole and partial chunks of blocks, whole and partial tiles, all sizes of panels.
TEST_P(MatMulTilesTest, AgreesWithOracleForAllShapes) {
  uint32_t seed = 1;
  for (DType dtype : testing::TiledTypes()) {
    // Those of stored blocks share all but unpack.cc.
    const bool is_stored = TileFormatOf(dtype).is_stored();
    for (int64_t tokens = 0; tokens <= 13; tokens += is_stored ? 3 : 1) {
      for (int64_t rows : {1, 7, 8, 9, 16, 17, 24, 33, 48, 61}) {
        if (is_stored && rows != 1 && rows != 17 && rows != 48) continue;
        Check(dtype, 1 + (rows + 5 * tokens) % 37, rows, tokens, DataKind::kNormal, seed++);
      }
    }
  }
}

// The same with so many tokens that tiles are unpacked for them.
TEST_P(MatMulTilesTest, AgreesWithOracleForManyTokens) {
  uint32_t seed = 1000;
  for (DType dtype : testing::TiledTypes()) {
    for (int64_t tokens : {24, 25, 28, 31, 97}) {
      for (int64_t rows : {1, 17, 48, 61}) {
        Check(dtype, 1 + (rows + 5 * tokens) % 37, rows, tokens, DataKind::kNormal, seed++);
      }
    }
  }
}

TEST_P(MatMulTilesTest, AgreesWithOracleForAdversarialData) {
  uint32_t seed = 2000;
  for (DType dtype : testing::TiledTypes()) {
    for (DataKind kind : testing::kAllDataKinds) {
      Check(dtype, 5, 22, 1, kind, seed++);
      Check(dtype, 19, 38, 7, kind, seed++);
    }
  }
}

TEST_P(MatMulTilesTest, AgreesWithOracleForRealSizes) {
  uint32_t seed = 3000;
  for (DType dtype : testing::TiledTypes()) {
    Check(dtype, 128, 67, 14, DataKind::kNormal, seed++);
    Check(dtype, 448, 16, 2, DataKind::kNormal, seed++);
    Check(dtype, 3, 20, 203, DataKind::kNormal, seed++);  // more tokens than go by at once
  }
}

TEST_P(MatMulTilesTest, NonFiniteActivationsShowInTheResult) {
  constexpr int64_t kBlocks = 8;
  std::vector<float> x(kBlocks * 32, 1.0f);
  x[40] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t tokens : {1, 2}) {
    BlockQ8 blocks[2 * kBlocks];
    for (int64_t t = 0; t < tokens; ++t) {
      table().quantize_q8(x.data(), kBlocks * 32, blocks + t, tokens);
    }
    for (DType dtype : testing::TiledTypes()) {
      std::mt19937 random(7);
      const TileLayout layout(dtype, kBlocks * 32);
      const std::vector<std::byte> row =
          testing::RandomBlocks(dtype, kBlocks * 32, random, DataKind::kNormal);
      std::vector<std::byte> tiles(layout.matrix_bytes(1));
      PackTiles(dtype, layout, row.data(), row.size(), 1, tiles.data());
      float out[2] = {0, 0};
      table().matmul_tiles[static_cast<int>(dtype)]({tiles.data(), layout.tile_bytes(), kBlocks,
                                                     blocks, tokens, out, 1, 1, 0, 1,
                                                     TileChoice(table().tile_unit, 1).For(tokens)});
      for (int64_t t = 0; t < tokens; ++t) EXPECT_TRUE(std::isnan(out[t])) << NameOf(dtype);
    }
  }
}

HEARTH_FOR_ALL_TABLES(MatMulTilesTest);

}  // namespace
}  // namespace hearth::kernels
