// Bundles of random weights as they lie in a file, and the same FFNs in memory. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "pipeline/streamed_ffns.h"
#include "storage/async/memory_file.h"
#include "tensor/row_groups.h"

namespace hearth {

struct TestSizes {
  int64_t layers = 2;
  int64_t experts = 1;
  int64_t neurons = 200;
  int64_t hidden = 160;
  DType dtype = DType::kQ4_0;
  BundleKind kind{};
};

// All kinds, by turns.
inline BundleKind KindOfTrial(int trial) {
  constexpr BundleKind kKinds[] = {
      {}, {.is_gated = false, .has_bias = true}, {}, {.is_gated = false}};
  return kKinds[trial % 4];
}

// The bundles of a model of random weights, as they lie in a file.
class TestBundles {
 public:
  explicit TestBundles(const TestSizes& sizes, uint32_t seed)
      : sizes_(sizes),
        layout_(MakeBundleLayout(sizes.dtype, sizes.hidden, sizes.kind)),
        random_(seed) {
    bytes_.resize(kBundleAlignment +
                  static_cast<size_t>(sizes.layers * sizes.experts * sizes.neurons) *
                      layout_.stride);
    for (size_t at = kBundleAlignment; at < bytes_.size(); at += layout_.stride) {
      const std::span<std::byte> bundle = std::span(bytes_).subspan(at, layout_.stride);
      for (const BundlePart& part : layout_.parts) {
        if (part.role == BundleRole::kBias) {
          const float bias = std::normal_distribution<float>(0, 1)(random_);
          std::memcpy(&bundle[part.offset], &bias, sizeof(bias));
        } else if (part.role != BundleRole::kCheck) {
          WriteRow(bundle.subspan(part.offset));
        }
      }
      SetBundleChecks(layout_, bundle);
    }
  }

  const TestSizes& sizes() const { return sizes_; }
  StreamShape shape() const {
    return BundleSource::ShapeOf(layout_, sizes_.layers * sizes_.experts, sizes_.neurons);
  }
  const BundleLayout& layout() const { return layout_; }
  std::vector<std::byte>& bytes() { return bytes_; }

  std::unique_ptr<AsyncFile> File(Budget& budget, uint64_t completion_seed) const {
    Buffer copy(budget, "test file", bytes_.size());
    std::memcpy(copy.data(), bytes_.data(), bytes_.size());
    return MakeMemoryFile("model.gguf", std::move(copy),
                          {.alignment_bytes = 512,
                           .memory_alignment_bytes = 512,
                           .completion_seed = completion_seed});
  }

  BundleSource Source(std::unique_ptr<AsyncFile> file) const {
    BundleSource source{.file = std::move(file),
                        .layout = layout_,
                        .hidden_size = sizes_.hidden,
                        .num_layers = sizes_.layers,
                        .num_experts = sizes_.experts,
                        .neurons = sizes_.neurons};
    for (int64_t layer = 0; layer < sizes_.layers; ++layer) {
      source.layer_offsets.push_back(OffsetOf(layer * sizes_.experts, 0));
    }
    return source;
  }

  uint64_t OffsetOf(int64_t ffn, int64_t neuron) const {
    return kBundleAlignment + static_cast<uint64_t>(ffn * sizes_.neurons + neuron) * layout_.stride;
  }

  // The FFN as it would lie in memory.
  FfnNeurons Resident(const StreamedFfn& ffn) const {
    const std::byte* const first =
        bytes_.data() + OffsetOf(ffn.layer * sizes_.experts + ffn.expert, 0);
    const auto rows = [&](BundleRole role) {
      return RowsOfPart(layout_, role, sizes_.hidden, sizes_.neurons, first, layout_.stride);
    };
    return {rows(BundleRole::kGate), rows(BundleRole::kUp), rows(BundleRole::kDown), ffn.activation,
            ffn.threshold};
  }

 private:
  void WriteRow(std::span<std::byte> out) {
    std::vector<float> row(static_cast<size_t>(sizes_.hidden));
    std::normal_distribution<float> normal(0, 0.1f);
    for (float& w : row) w = normal(random_);
    std::vector<std::byte> blocks(RowBytes(sizes_.dtype, row.size()));
    kernels::Convert(DType::kF32, reinterpret_cast<const std::byte*>(row.data()), sizes_.hidden,
                     sizes_.dtype, blocks.data());
    if (HasRowGroups(sizes_.dtype)) {
      kernels::PackRow(sizes_.dtype, blocks.data(), sizes_.hidden, out.data());
    } else {
      std::memcpy(out.data(), blocks.data(), blocks.size());
    }
  }

  TestSizes sizes_;
  BundleLayout layout_;
  std::mt19937 random_;
  std::vector<std::byte> bytes_;
};

inline std::vector<float> RandomFloats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Neurons of a token: the first ones more often, as in a packed file.
inline std::vector<int32_t> RandomList(int64_t neurons, std::mt19937& random) {
  std::vector<int32_t> list;
  const double share = std::uniform_real_distribution<double>(0, 1)(random);
  for (int64_t n = 0; n < neurons; ++n) {
    const double rate = share * (1 - 0.8 * static_cast<double>(n) / static_cast<double>(neurons));
    if (std::bernoulli_distribution(rate)(random)) list.push_back(static_cast<int32_t>(n));
  }
  return list;
}

// That rows are those of `all` from `first` on, byte for byte.
// slots: see FfnNeurons.
inline void ExpectRows(const RowsView& rows, const int32_t* slots, const RowsView& all,
                       int64_t first) {
  const size_t bytes = RowBytes(rows.dtype, static_cast<size_t>(rows.cols));
  for (int64_t i = 0; i < rows.rows; ++i) {
    const auto row = static_cast<size_t>(slots != nullptr ? slots[i] : i);
    EXPECT_EQ(std::memcmp(rows.data + row * rows.stride,
                          all.data + static_cast<size_t>(first + i) * all.stride, bytes),
              0)
        << first + i;
  }
}

inline void ExpectNeurons(const FfnNeurons& rows, const FfnNeurons& all, int64_t first) {
  ExpectRows(rows.gate, rows.slots, all.gate, first);
  ExpectRows(rows.up, rows.slots, all.up, first);
  ExpectRows(rows.down, rows.slots, all.down, first);
}

class StreamedFfnsTest : public ::testing::Test {
 protected:
  StreamedFfnsTest() { UseIsa(0); }

  // Another instruction set for every trial, the best one first.
  void UseIsa(size_t trial) {
    const std::vector<std::string> names = UsableIsaNames();
    isa_ = names[names.size() - 1 - trial % names.size()];
    compute_.emplace(isa_, 3);
  }

  std::vector<float> Resident(const TestBundles& model, const StreamedFfn& ffn,
                              const std::vector<float>& x,
                              std::optional<std::span<const int32_t>> list,
                              bool skip_silent = true) {
    SparseFfn op(budget_, model.sizes().hidden, model.sizes().neurons);
    std::vector<float> out(x.size());
    counts_ = op.Activate(*compute_, model.Resident(ffn), x.data(), list, skip_silent);
    op.AddDown(*compute_, model.Resident(ffn), out.data());
    fired_.clear();
    op.ListFired(fired_);
    return out;
  }

  StreamPlan RandomPlan(const StreamShape& shape, bool holds_gates = false) {
    const auto pick = [&](int64_t from, int64_t to) {
      return std::uniform_int_distribution<int64_t>(from, to)(random_);
    };
    StreamPlan plan;
    plan.holds_gates = holds_gates;
    plan.pinned_neurons = std::min(64 * pick(0, shape.neurons / 64 + 1), shape.neurons);
    plan.cache_slots =
        pick(1, std::max<int64_t>((shape.neurons - plan.pinned_neurons) * shape.num_ffns, 1));
    plan.range_neurons = 64 * pick(1, 3);
    plan.range_buffers = pick(2, 4);
    plan.queue_depth = static_cast<int>(pick(1, 20));
    return plan;
  }

  Budget budget_;
  std::string isa_;
  std::optional<Compute> compute_;
  std::mt19937 random_{7};
  // Of the last Resident.
  SparseFfnCounts counts_;
  std::vector<int32_t> fired_;
};

}  // namespace hearth
