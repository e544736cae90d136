#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace hearth {
namespace {

struct Shape {
  int64_t heads, kv_heads, head_dim, length, window;
};

// Keys and values of one sequence, in pages and as plain numbers.
class Sequence {
 public:
  Sequence(const KvLayout& layout, int64_t length, unsigned seed) : layout_(layout) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    memory_.resize(layout.page_bytes() * static_cast<size_t>(KvLayout::PagesFor(length)));
    for (int64_t p = 0; p < KvLayout::PagesFor(length); ++p) {
      pages_.push_back(memory_.data() + static_cast<size_t>(p) * layout.page_bytes());
    }
    for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
      for (int64_t p = 0; p < length; ++p) {
        for (int64_t i = 0; i < layout.head_dim; ++i) {
          Set(layout.KeysOffset(1, head), p, i, normal(random));
          Set(layout.ValuesOffset(1, head), p, i, normal(random));
        }
      }
    }
  }
  double At(size_t offset, int64_t position, int64_t i) const {
    const std::byte* at = Address(offset, position, i);
    if (layout_.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, at, sizeof(value));
      return static_cast<double>(value);
    }
    uint16_t half;
    std::memcpy(&half, at, sizeof(half));
    return static_cast<double>(HalfToFloat(half));
  }
  std::span<std::byte* const> pages() const { return pages_; }

 private:
  std::byte* Address(size_t offset, int64_t position, int64_t i) const {
    const int64_t index = (position % KvLayout::kPageTokens) * layout_.head_dim + i;
    return pages_[static_cast<size_t>(position / KvLayout::kPageTokens)] + offset +
           static_cast<size_t>(index) * layout_.element_bytes();
  }
  void Set(size_t offset, int64_t position, int64_t i, float value) {
    const uint16_t half = FloatToHalf(value);
    if (layout_.dtype == DType::kF32) {
      std::memcpy(Address(offset, position, i), &value, sizeof(value));
    } else {
      std::memcpy(Address(offset, position, i), &half, sizeof(half));
    }
  }

  KvLayout layout_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> pages_;
};

// The definition, in double.
double Reference(const Sequence& s, const KvLayout& layout, const Shape& shape, const float* q,
                 int64_t head, int64_t position, int64_t component) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;
  double sum = 0;
  double out = 0;
  for (int64_t p = begin; p <= position; ++p) {
    double score = 0;
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      score += static_cast<double>(q[head * shape.head_dim + i]) *
               s.At(layout.KeysOffset(1, kv_head), p, i);
    }
    sum += std::exp(score);
    out += std::exp(score) * s.At(layout.ValuesOffset(1, kv_head), p, component);
  }
  return out / sum;
}

TEST(AttentionTest, AgreesWithTheDefinition) {
  const Shape shapes[] = {{4, 2, 16, 1, 0},   {4, 2, 16, 64, 0},  {6, 3, 8, 65, 0},
                          {5, 5, 24, 130, 0}, {8, 1, 20, 200, 0}, {4, 4, 16, 150, 70},
                          {3, 1, 33, 100, 1}};
  for (const std::string& isa : UsableIsaNames()) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const Shape& shape : shapes) {
        const KvLayout layout{dtype, 2, shape.kv_heads, shape.head_dim};
        const Sequence a(layout, shape.length, 1), b(layout, shape.length, 2);
        const int64_t width = shape.heads * shape.head_dim;
        std::vector<float> q(static_cast<size_t>(3 * width)), out(q.size());
        std::mt19937 random(9);
        std::normal_distribution<float> normal;
        for (float& v : q) v = 0.3f * normal(random);
        // A ragged batch: two tokens of one sequence, one of another.
        const std::vector<int64_t> positions = {shape.length - 1, shape.length / 2,
                                                shape.length - 1};
        const Sequence* owner[] = {&a, &a, &b};
        const std::vector<std::span<std::byte* const>> pages = {a.pages(), a.pages(), b.pages()};
        Compute compute(isa, 2);
        std::vector<float> scores(static_cast<size_t>(2 * shape.length));
        Attention(compute, {.layout = &layout,
                            .layer = 1,
                            .num_heads = shape.heads,
                            .sliding_window = shape.window,
                            .q = {q.data(), 3, width, width},
                            .out = {out.data(), 3, width, width},
                            .positions = positions,
                            .pages = pages,
                            .scores = {scores.data(), 2, shape.length, shape.length}});
        for (size_t t = 0; t < 3; ++t) {
          const float* query = q.data() + static_cast<int64_t>(t) * width;
          for (int64_t head = 0; head < shape.heads; ++head) {
            const int64_t i = shape.head_dim - 1;
            EXPECT_NEAR(out[t * static_cast<size_t>(width) +
                            static_cast<size_t>(head * shape.head_dim + i)],
                        Reference(*owner[t], layout, shape, query, head, positions[t], i), 2e-5)
                << isa << " " << NameOf(dtype) << " head_dim " << shape.head_dim;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth
