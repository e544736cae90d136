// Whose turn it is, for policies that count time by layers. Internal to src/cache.
#pragma once

#include <cstdint>

namespace hearth::cache {

// A *turn* of a layer is a run of batches of that layer in a token, usually one; a prompt has many.
class LayerTurns {
 public:
  // Layers share the keys equally.
  LayerTurns(int64_t num_keys, int32_t num_layers)
      : num_layers_(num_layers), keys_per_layer_(static_cast<int32_t>(num_keys / num_layers)) {}

  int32_t num_layers() const noexcept { return num_layers_; }
  int32_t LayerOf(int32_t key) const noexcept { return key / keys_per_layer_; }

  // A batch comes of this key's layer. Returns whether a turn begins with it.
  bool Begin(int32_t key) noexcept {
    current_ = LayerOf(key);
    goes_on_ = current_ == last_;
    last_ = current_;
    return !goes_on_;
  }
  void EndToken() noexcept { last_ = -1; }

  // Of the last batch.
  int32_t current() const noexcept { return current_; }
  bool goes_on() const noexcept { return goes_on_; }
  // The layer that is so many turns back, 0 to num_layers: the more, the sooner is its next.
  int32_t Back(int32_t turns) const noexcept {
    return current_ - turns + (current_ < turns ? num_layers_ : 0);
  }

 private:
  const int32_t num_layers_;
  const int32_t keys_per_layer_;
  int32_t current_ = 0;
  int32_t last_ = -1;     // of the batch before in this token
  bool goes_on_ = false;  // the batch before was of the same layer
};

}  // namespace hearth::cache
