#include "accel/attention_kernels.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "accel/test_device.h"
#include "base/error.h"
#include "tensor/half.h"

namespace hearth::accel {
namespace {

using testing::RandomFloats;
using testing::TestBench;

// Two sequences: rows of the first begin at position `first`, and one row of the second is at
// position 70.
struct AttentionCase {
  int64_t rows = 1;
  int64_t first = 0;
  int64_t heads = 1, kv_heads = 1, head_dim = 8;
  KvCodec codec = KvCodec::kF16;
  int64_t parts = 1;
  int64_t window = 0;
  float temperature = 0;
  float softcap = 0;
  bool has_sinks = false;
  int64_t rows_at_once = 1;  // that `partial` has room for
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.rows << " rows from " << c.first << ", " << c.heads << "/" << c.kv_heads << " x "
             << c.head_dim << ", " << c.parts << " parts, window " << c.window;
}

constexpr int64_t kPeriod = 50;

class AttentionCheck {
 public:
  explicit AttentionCheck(const AttentionCase& c)
      : case_(c), layout_{c.codec, 1, c.kv_heads, c.head_dim}, kernels_(bench_.device(), layout_) {
    PlacePages();
  }

  void Run() {
    SCOPED_TRACE(case_);
    StoreAll();
    const auto rows = std::ssize(positions_);
    const auto of_row = static_cast<size_t>(case_.heads * case_.head_dim);
    const std::vector<float> q = RandomFloats(static_cast<size_t>(rows) * of_row, 3);
    const std::vector<float> sinks = RandomFloats(static_cast<size_t>(case_.heads), 4);
    DeviceBuffer& out = bench_.Room(q.size());
    DeviceBuffer& partial = bench_.Room(static_cast<size_t>(AttentionKernels::PartialFloats(
        case_.heads, case_.head_dim, case_.rows_at_once, case_.parts)));
    const DeviceScores scores = {.heads = case_.heads,
                                 .window = case_.window,
                                 .scale = 0.4f,
                                 .temperature = case_.temperature,
                                 .period = kPeriod,
                                 .softcap = case_.softcap,
                                 .sinks = case_.has_sinks ? &bench_.Put(sinks) : nullptr};
    kernels_.Attend(bench_.queue(), at_, scores,
                    {&bench_.Put(q), &out, &partial, rows, case_.parts});
    const std::vector<float> found = bench_.Floats(out, q.size());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t head = 0; head < case_.heads; ++head) {
        const size_t from =
            static_cast<size_t>(r) * of_row + static_cast<size_t>(head * case_.head_dim);
        Compare({&q[from], static_cast<size_t>(case_.head_dim)}, r, head,
                sinks[static_cast<size_t>(head)], &found[from]);
      }
    }
  }

 private:
  // Keys and values of a position of a sequence.
  struct Stored {
    std::vector<float> keys, values;
  };

  // Slots of pages in no order, some of which belong to nobody.
  void PlacePages() {
    lengths_ = {case_.first + case_.rows, 71};
    std::vector<int32_t> free(static_cast<size_t>(KvLayout::PagesFor(lengths_[0])) + 5);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(7));
    const size_t slots = free.size();
    for (const int64_t length : lengths_) {
      list_begins_.push_back(static_cast<int32_t>(slots_.size()));
      for (int64_t i = 0; i < KvLayout::PagesFor(length); ++i) {
        slots_.push_back(free.back());
        free.pop_back();
      }
    }
    for (int64_t r = 0; r < case_.rows; ++r) {
      begins_.push_back(list_begins_[0]);
      positions_.push_back(static_cast<int32_t>(case_.first + r));
    }
    begins_.push_back(list_begins_[1]);
    positions_.push_back(70);
    pages_bytes_ = slots * layout_.head_bytes() * static_cast<size_t>(case_.kv_heads);
    at_ = {.pages = &bench_.Room<std::byte>(pages_bytes_),
           .slots = &bench_.Put(slots_),
           .begins = &bench_.Put(begins_),
           .positions = &bench_.Put(positions_)};
  }

  float Rounded(float value) const {
    return case_.codec == KvCodec::kF16 ? HalfToFloat(FloatToHalf(value)) : value;
  }

  // Every position of both, in launches of some rows.
  void StoreAll() {
    const auto width = static_cast<size_t>(case_.kv_heads * case_.head_dim);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const auto length = static_cast<size_t>(lengths_[s]);
      std::vector<float> keys = RandomFloats(length * width, static_cast<unsigned>(10 + s));
      std::vector<float> values = RandomFloats(length * width, static_cast<unsigned>(20 + s));
      std::vector<int32_t> positions(length), begins(length, list_begins_[s]);
      std::iota(positions.begin(), positions.end(), 0);
      DevicePagesOfLayer at = at_;
      at.positions = &bench_.Put(positions);
      at.begins = &bench_.Put(begins);
      kernels_.Store(bench_.queue(), at, bench_.Put(keys), bench_.Put(values), lengths_[s]);
      for (std::vector<float>* numbers : {&keys, &values}) {
        for (float& number : *numbers) number = Rounded(number);
      }
      stored_.push_back({std::move(keys), std::move(values)});
    }
    CheckPages();
  }

  // They lie where the host's layout says.
  void CheckPages() {
    const auto element = static_cast<size_t>(BytesOf(layout_.values()));
    std::vector<std::byte> pages(pages_bytes_);
    bench_.queue().Download(*at_.pages, 0, pages);
    bench_.queue().Finish();
    const auto number = [&](size_t offset) {
      if (case_.codec == KvCodec::kF32) {
        float value = 0;
        std::memcpy(&value, &pages[offset], sizeof(value));
        return value;
      }
      uint16_t half = 0;
      std::memcpy(&half, &pages[offset], sizeof(half));
      return HalfToFloat(half);
    };
    for (size_t s = 0; s < lengths_.size(); ++s) {
      for (int64_t p = 0; p < lengths_[s]; ++p) {
        const int64_t row = p % KvLayout::kPageTokens;
        const auto slot = static_cast<size_t>(
            slots_[static_cast<size_t>(list_begins_[s] + p / KvLayout::kPageTokens)]);
        const size_t page = slot * layout_.head_bytes() * static_cast<size_t>(case_.kv_heads);
        for (int64_t head = 0; head < case_.kv_heads; ++head) {
          for (int64_t i = 0; i < case_.head_dim; ++i) {
            const auto from = static_cast<size_t>((p * case_.kv_heads + head) * case_.head_dim + i);
            const auto key =
                static_cast<size_t>(layout_.KeyBlockAt(row) +
                                    layout_.key_block().ComponentAt(row % KvLayout::kKeyBlock, i));
            const auto value = static_cast<size_t>(layout_.ValueAt(row));
            ASSERT_EQ(number(page + layout_.KeysOffset(0, head) + key), stored_[s].keys[from]);
            ASSERT_EQ(number(page + layout_.ValuesOffset(0, head) + value +
                             static_cast<size_t>(i) * element),
                      stored_[s].values[from]);
          }
        }
      }
    }
  }

  // With the formula, in float64.
  void Compare(std::span<const float> q, int64_t row, int64_t head, float sink,
               const float* found) const {
    const Stored& stored = stored_[row < case_.rows ? 0 : 1];
    const int64_t position = positions_[static_cast<size_t>(row)];
    const int64_t kv_head = head / (case_.heads / case_.kv_heads);
    const auto at = [&](int64_t p) {
      return static_cast<size_t>((p * case_.kv_heads + kv_head) * case_.head_dim);
    };
    const double warm = 1 + static_cast<double>(case_.temperature) *
                                std::log1p(static_cast<double>(position / kPeriod));
    double total = case_.has_sinks ? std::exp(static_cast<double>(sink)) : 0;
    std::vector<double> sums(q.size());
    const int64_t oldest = case_.window > 0 ? std::max<int64_t>(0, position + 1 - case_.window) : 0;
    for (int64_t p = oldest; p <= position; ++p) {
      double score = 0;
      for (size_t i = 0; i < q.size(); ++i) {
        score += static_cast<double>(q[i]) * static_cast<double>(stored.keys[at(p) + i]);
      }
      score *= 0.4 * warm;
      const auto cap = static_cast<double>(case_.softcap);
      if (cap > 0) score = cap * std::tanh(score / cap);
      const double weight = std::exp(score);
      total += weight;
      for (size_t i = 0; i < q.size(); ++i) {
        sums[i] += weight * static_cast<double>(stored.values[at(p) + i]);
      }
    }
    for (size_t i = 0; i < q.size(); ++i) {
      ASSERT_NEAR(found[i], sums[i] / total, 3e-5) << "row " << row << ", head " << head;
    }
  }

  const AttentionCase case_;
  const KvLayout layout_;
  TestBench bench_;
  AttentionKernels kernels_;
  std::vector<int64_t> lengths_;
  std::vector<int32_t> slots_, list_begins_, begins_, positions_;
  DevicePagesOfLayer at_;
  size_t pages_bytes_ = 0;
  std::vector<Stored> stored_;
};

TEST(AttentionKernels, AgreeWithTheFormula) {
  HEARTH_NEED_DEVICE();
  for (const int64_t parts : {int64_t{1}, AttentionKernels::kParts}) {
    AttentionCheck({.parts = parts}).Run();
    AttentionCheck({.rows = 3,
                    .first = 62,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 33,
                    .parts = parts,
                    .rows_at_once = 2})
        .Run();
    AttentionCheck({.rows = 2,
                    .first = 127,
                    .heads = 2,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .codec = KvCodec::kF32,
                    .parts = parts,
                    .window = 40})
        .Run();
    AttentionCheck({.rows = 5,
                    .first = 130,
                    .heads = 3,
                    .head_dim = 100,
                    .parts = parts,
                    .softcap = 3,
                    .has_sinks = true})
        .Run();
    AttentionCheck({.first = 5, .head_dim = 256, .parts = parts, .temperature = 0.3f}).Run();
  }
}

// More positions than the parts of a row have at least.
TEST(AttentionKernels, PartsAreAsLongAsTheyMustBe) {
  HEARTH_NEED_DEVICE();
  AttentionCheck({.rows = 2,
                  .first = 2300,
                  .heads = 2,
                  .head_dim = 16,
                  .parts = AttentionKernels::kParts,
                  .temperature = 0.1f,
                  .has_sinks = true})
      .Run();
}

TEST(AttentionKernels, RefuseWhatTheyCannot) {
  HEARTH_NEED_DEVICE();
  EXPECT_FALSE(AttentionKernels::Takes({KvCodec::kF16, 1, 1, 257}));
  EXPECT_FALSE(AttentionKernels::Takes({KvCodec::kK8V8, 1, 1, 64}));
  TestBench bench;
  EXPECT_THROW(AttentionKernels(bench.device(), {KvCodec::kK8, 1, 1, 64}), Error);
  AttentionKernels kernels(bench.device(), {KvCodec::kF16, 1, 2, 8});
  DeviceBuffer& room = bench.Room(4096);
  const DevicePagesOfLayer at = {&room, &room, &room, &room};
  EXPECT_THROW(kernels.Attend(bench.queue(), at, {.heads = 3}, {&room, &room, &room, 1}), Error);
  EXPECT_THROW(kernels.Attend(bench.queue(), at, {.heads = 2}, {&room, &room, &room, 9999}), Error);
}

}  // namespace
}  // namespace hearth::accel
