// A small picture of what a pass computed: by layer, in columns of neighbouring neurons, how many
// neurons were computed and where each of them came from. For live views; filled only while
// somebody looks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace hearth {

// Where a neuron was when a token wanted it.
enum class NeuronPlace : uint8_t { kPinned, kCached, kRead };
inline constexpr int64_t kNumNeuronPlaces = 3;

// A layer's neurons lie in the order of the file, the FFNs of its experts one after the other;
// column c holds the neurons from ceil(c n / columns) on, of all n of a layer. One thread at a
// time; allocates when it is made and never again.
class NeuronMap {
 public:
  static constexpr int64_t kMostColumns = 128;

  // num_experts: FFNs of a layer, 1 where it has one; neurons: of an FFN.
  NeuronMap(int64_t num_layers, int64_t num_experts, int64_t neurons);

  int64_t num_layers() const { return num_layers_; }
  int64_t num_experts() const { return num_experts_; }
  int64_t neurons() const { return neurons_; }
  // How Add numbers FFNs.
  int64_t Ffn(int64_t layer, int64_t expert) const { return layer * num_experts_ + expert; }
  // As many as make columns end where experts do, as far as there are not too many experts.
  int64_t num_columns() const { return std::ssize(begins_) - 1; }

  // Begins anew, for a pass of so many tokens; all counts are 0, and it is not whole.
  void Begin(int64_t tokens) noexcept;
  // The pass has worked.
  void Finish() noexcept { is_whole_ = true; }
  bool is_whole() const { return is_whole_; }
  int64_t tokens() const { return tokens_; }

  // Counts neurons at(0), ..., at(count - 1), ascending, of an FFN, the i-th for tokens_of(i)
  // tokens. A neuron that several calls name counts for each of them; counts end at 65535.
  template <typename NeuronAt, typename TokensOf>
  void Add(int64_t ffn, NeuronPlace place, int64_t count, NeuronAt&& at,
           TokensOf&& tokens_of) noexcept {
    const int64_t first = ffn % num_experts_ * neurons_;
    uint16_t* const row = Row(place, ffn / num_experts_);
    int64_t column = ColumnOf(first);
    for (int64_t i = 0; i < count; ++i) {
      while (first + at(i) >= begins_[static_cast<size_t>(column) + 1]) ++column;
      constexpr int kMost = std::numeric_limits<uint16_t>::max();
      row[column] = static_cast<uint16_t>(std::min(row[column] + int{tokens_of(i)}, kMost));
    }
  }
  void Add(int64_t ffn, NeuronPlace place, std::span<const int32_t> neurons) noexcept {
    Add(
        ffn, place, std::ssize(neurons),
        [&](int64_t i) { return int64_t{neurons[static_cast<size_t>(i)]}; },
        [](int64_t) { return 1; });
  }
  void AddRange(int64_t ffn, NeuronPlace place, int64_t begin, int64_t end) noexcept {
    Add(
        ffn, place, end - begin, [&](int64_t i) { return begin + i; }, [](int64_t) { return 1; });
  }

  // [num_layers][num_columns].
  std::span<const uint16_t> counts(NeuronPlace place) const {
    const auto cells = static_cast<size_t>(num_layers_ * num_columns());
    return std::span(counts_).subspan(static_cast<size_t>(place) * cells, cells);
  }

 private:
  uint16_t* Row(NeuronPlace place, int64_t layer) {
    return counts_.data() + (static_cast<int64_t>(place) * num_layers_ + layer) * num_columns();
  }
  int64_t ColumnOf(int64_t neuron) const {
    return std::upper_bound(begins_.begin(), begins_.end(), neuron) - begins_.begin() - 1;
  }

  int64_t num_layers_;
  int64_t num_experts_;
  int64_t neurons_;
  std::vector<int64_t> begins_;   // of columns, and the end
  std::vector<uint16_t> counts_;  // [place][layer][column]
  int64_t tokens_ = 0;
  bool is_whole_ = false;
};

}  // namespace hearth
