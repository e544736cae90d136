#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/fp8.h"
#include "tensor/half.h"
#include "tensor/test_kv_numbers.h"

namespace hearth {
namespace {

struct Shape {
  int64_t heads, kv_heads, head_dim, length, window;
  float softcap = 0;
  bool has_sinks = false;

  // Below and above the scores of heads.
  float Sink(int64_t head) const { return static_cast<float>(3 * head - 4); }
};

// Keys and values of one sequence, in pages and as plain numbers: those that the pages hold.
class Sequence {
 public:
  Sequence(const KvLayout& layout, int64_t length, unsigned seed) : layout_(layout) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    memory_.resize(layout.page_bytes() * static_cast<size_t>(KvLayout::PagesFor(length)));
    for (int64_t p = 0; p < KvLayout::PagesFor(length); ++p) {
      pages_.push_back(memory_.data() + static_cast<size_t>(p) * layout.page_bytes());
    }
    std::vector<float> row(static_cast<size_t>(layout.head_dim));
    for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
      for (int64_t p = 0; p < length; ++p) {
        for (float& v : row) v = normal(random);
        SetKey(head, p, row);
        for (float& v : row) v = normal(random);
        SetValue(head, p, row);
      }
    }
  }
  double Key(int64_t head, int64_t position, int64_t i) const {
    return testing::KeyAt(layout_.key_block(), KeyBlock(head, position),
                          position % KeyBlockLayout::kTokens, i)
        .value();
  }
  double Value(int64_t head, int64_t position, int64_t i) const {
    const std::byte* values = Values(head, position);
    const int64_t row = position % KvLayout::kPageTokens;
    const std::byte* at = values + layout_.ValueAt(row) + i * BytesOf(layout_.values());
    const double scale =
        layout_.has_value_scales() ? testing::HalfAt(values + layout_.ValueScaleAt(row)) : 1;
    return scale * testing::ValueAt(layout_.values(), at);
  }
  std::span<std::byte* const> pages() const { return pages_; }

 private:
  std::byte* KeyBlock(int64_t head, int64_t position) const {
    return Page(position) + layout_.KeysOffset(1, head) +
           layout_.KeyBlockAt(position % KvLayout::kPageTokens);
  }
  std::byte* Values(int64_t head, int64_t position) const {
    return Page(position) + layout_.ValuesOffset(1, head);
  }
  std::byte* Page(int64_t position) const {
    return pages_[static_cast<size_t>(position / KvLayout::kPageTokens)];
  }
  static void SetNumber(std::byte* at, float value, bool is_half) {
    const uint16_t half = FloatToHalf(value);
    if (is_half) {
      std::memcpy(at, &half, sizeof(half));
    } else {
      std::memcpy(at, &value, sizeof(value));
    }
  }
  void SetKey(int64_t head, int64_t position, const std::vector<float>& key) {
    const KeyBlockLayout block = layout_.key_block();
    const int64_t token = position % KeyBlockLayout::kTokens;
    std::byte* keys = KeyBlock(head, position);
    const float scale = 6.0f / static_cast<float>(std::max(1, MostCodeOf(block.keys)));
    const float zero = -3.0f;
    for (int64_t i = 0; i < layout_.head_dim; ++i) {
      if (block.has_codes()) {
        SetNumber(keys + block.ScaleAt(token, i), scale, true);
        SetNumber(keys + block.ZeroAt(token, i), zero, true);
      }
      const float number = key[static_cast<size_t>(i)];
      std::byte* at = keys + block.ComponentAt(token, i);
      if (!block.has_codes()) {
        SetNumber(at, number, block.keys == KvKeys::kF16);
        continue;
      }
      const auto most = static_cast<float>(MostCodeOf(block.keys));
      const auto code =
          static_cast<uint8_t>(std::clamp(std::nearbyint((number - zero) / scale), 0.0f, most));
      const bool is_high = block.keys == KvKeys::kInt4 && i % 2 == 1;
      *at = is_high ? *at | static_cast<std::byte>(code << 4) : static_cast<std::byte>(code);
    }
  }
  void SetValue(int64_t head, int64_t position, const std::vector<float>& value) {
    std::byte* values = Values(head, position);
    const int64_t row = position % KvLayout::kPageTokens;
    constexpr float kScale = 0.0123f;
    if (layout_.has_value_scales()) {
      SetNumber(values + layout_.ValueScaleAt(row), kScale, true);
    }
    for (int64_t i = 0; i < layout_.head_dim; ++i) {
      const float number = value[static_cast<size_t>(i)];
      std::byte* at = values + layout_.ValueAt(row) + i * BytesOf(layout_.values());
      if (layout_.has_value_scales()) {
        *at = static_cast<std::byte>(FloatToFp8(number / kScale));
      } else {
        SetNumber(at, number, layout_.values() == KvValues::kF16);
      }
    }
  }

  KvLayout layout_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> pages_;
};

// The definition, in double.
double Reference(const Sequence& s, const Shape& shape, const float* q, int64_t head,
                 int64_t position, int64_t component) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t begin = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;
  double sum = 0;
  double out = 0;
  for (int64_t p = begin; p <= position; ++p) {
    double score = 0;
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      score += static_cast<double>(q[head * shape.head_dim + i]) * s.Key(kv_head, p, i);
    }
    if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
    sum += std::exp(score);
    out += std::exp(score) * s.Value(kv_head, p, component);
  }
  if (shape.has_sinks) sum += std::exp(double{shape.Sink(head)});
  return out / sum;
}

// A batch with the memory that Attention asks for.
class Batch {
 public:
  Batch(const KvLayout& layout, const Shape& shape, std::vector<int64_t> positions,
        std::vector<const Sequence*> owners)
      : layout_(layout), shape_(shape), positions_(std::move(positions)), owners_(owners) {
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    q_.resize(static_cast<size_t>(tokens() * width()));
    for (float& v : q_) v = 0.3f * normal(random);
  }

  int64_t tokens() const { return static_cast<int64_t>(positions_.size()); }
  int64_t width() const { return shape_.heads * shape_.head_dim; }
  const float* q(int64_t token) const { return q_.data() + token * width(); }

  // [tokens][width], computed in calls of at most `chunk` tokens.
  std::vector<float> Run(std::string_view isa, int threads, int64_t chunk) {
    Compute compute(isa, threads);
    const AttentionScratch scratch =
        AttentionScratchFor(layout_, shape_.heads, shape_.length, threads);
    std::vector<float> of_threads(static_cast<size_t>(scratch.thread_floats * threads));
    std::vector<float> partial(static_cast<size_t>(scratch.partial_floats));
    std::vector<float> out(q_.size());
    std::vector<float> sinks;
    for (int64_t head = 0; head < shape_.heads; ++head) sinks.push_back(shape_.Sink(head));
    for (int64_t t = 0; t < tokens(); t += chunk) {
      const int64_t count = std::min(chunk, tokens() - t);
      std::vector<std::span<std::byte* const>> pages;
      for (int64_t i = 0; i < count; ++i) pages.push_back(Owner(t + i).pages());
      Attention(
          compute,
          {.layout = &layout_,
           .layer = 1,
           .num_heads = shape_.heads,
           .sliding_window = shape_.window,
           .sinks = shape_.has_sinks ? sinks.data() : nullptr,
           .softcap = shape_.softcap,
           .q = {q_.data() + t * width(), count, width(), width()},
           .out = {out.data() + t * width(), count, width(), width()},
           .positions =
               std::span(positions_).subspan(static_cast<size_t>(t), static_cast<size_t>(count)),
           .pages = pages,
           .scratch = {of_threads.data(), threads, scratch.thread_floats, scratch.thread_floats},
           .partial = {partial.data(), 1, scratch.partial_floats, scratch.partial_floats}});
    }
    return out;
  }

  const Sequence& Owner(int64_t token) const { return *owners_[static_cast<size_t>(token)]; }

 private:
  KvLayout layout_;
  Shape shape_;
  std::vector<int64_t> positions_;
  std::vector<const Sequence*> owners_;
  std::vector<float> q_;
};

constexpr Shape kShapes[] = {
    {4, 2, 16, 1, 0},          {4, 2, 16, 64, 0},         {6, 3, 8, 65, 0},
    {5, 5, 24, 130, 0},        {8, 1, 20, 300, 0},        {4, 4, 16, 350, 70},
    {3, 1, 33, 100, 1},        {4, 2, 16, 600, 0},        {2, 1, 8, 1000, 300},
    {40, 1, 8, 257, 256},      {8, 4, 8, 1100, 0},        {6, 6, 8, 1500, 200},
    {4, 2, 16, 600, 0, 0.7f},  {6, 3, 8, 65, 0, 0, true}, {8, 4, 16, 1100, 70, 2, true},
    {8, 1, 16, 1, 0, 0, true}, {4, 2, 80, 300, 0},        {3, 1, 112, 200, 90},
    {6, 2, 96, 130, 0},        {2, 1, 256, 600, 64}};

TEST(AttentionTest, AgreesWithTheDefinition) {
  for (const std::string& isa : UsableIsaNames()) {
    for (size_t codec = 0; codec < kKvCodecs.size(); ++codec) {
      for (const Shape& shape : kShapes) {
        const KvLayout layout{static_cast<KvCodec>(codec), 2, shape.kv_heads, shape.head_dim};
        const Sequence a(layout, shape.length, 1), b(layout, shape.length, 2);
        // A ragged batch: two tokens of one sequence, one of another.
        const std::vector<int64_t> positions = {shape.length / 2, shape.length - 1,
                                                shape.length - 1};
        Batch batch(layout, shape, positions, {&a, &a, &b});
        const std::vector<float> out = batch.Run(isa, 2, 3);
        for (int64_t t = 0; t < 3; ++t) {
          for (int64_t head = 0; head < shape.heads; ++head) {
            const int64_t i = shape.head_dim - 1;
            EXPECT_NEAR(out[static_cast<size_t>(t * batch.width() + head * shape.head_dim + i)],
                        Reference(batch.Owner(t), shape, batch.q(t), head,
                                  positions[static_cast<size_t>(t)], i),
                        2e-5)
                << isa << " " << kKvCodecs[codec].name << " head_dim " << shape.head_dim;
          }
        }
      }
    }
  }
}

// Invariant 3: neither threads (with few KV heads they share splits) nor chunks change a bit.
TEST(AttentionTest, BitsDependNeitherOnThreadsNorOnChunks) {
  for (const std::string& isa : UsableIsaNames()) {
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      const Shape& shape = kShapes[i];
      const auto codec = static_cast<KvCodec>(i % kKvCodecs.size());
      const KvLayout layout{codec, 2, shape.kv_heads, shape.head_dim};
      const Sequence sequence(layout, shape.length, 3);
      std::vector<int64_t> positions;
      for (int64_t p = std::max<int64_t>(0, shape.length - 37); p < shape.length; ++p) {
        positions.push_back(p);
      }
      Batch batch(layout, shape, positions,
                  std::vector<const Sequence*>(positions.size(), &sequence));
      const std::vector<float> expected = batch.Run(isa, 1, 1);
      for (const int threads : {1, 3, 8}) {
        for (const int64_t chunk : {1, 5, 100}) {
          const std::vector<float> actual = batch.Run(isa, threads, chunk);
          EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0)
              << isa << " " << threads << " threads, chunks of " << chunk << ", length "
              << shape.length;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth
