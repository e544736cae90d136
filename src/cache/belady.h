// The most hits that any policy could have on recorded accesses.
//
// Accesses come in batches of distinct keys (a layer's). All keys of a batch that are held hit; the
// batch is then at hand as a whole, read into slots or beside them, and what is held from then on
// is any num_slots or fewer of what was held and what is at hand. So keys of a batch never push
// each other out before they are used, and a policy may let a key go at once. Keeping those whose
// next use is nearest has the most hits (Belady 1966; keys that are next used in the same batch are
// worth the same). It is a bound for every policy of NeuronCache, whose choices are fewer: what it
// admits stays to the end of its batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

class BeladyBound {
 public:
  // keys: of all batches, in [0, num_keys); batch_ends: ascending, where each batch ends in keys.
  // Takes 4 bytes per access and keeps nothing of its arguments.
  BeladyBound(std::span<const int32_t> keys, std::span<const size_t> batch_ends, int64_t num_keys);

  // Of a cache that is empty at first. num_slots >= 0. Takes 8 bytes per batch while it runs.
  int64_t Hits(int64_t num_slots) const;

 private:
  std::vector<int32_t> next_use_;  // per access: the batch of the key's next; -1: none
  std::vector<size_t> batch_ends_;
};

// What a token asks for, layer by layer, and what LRU makes of it.
struct WorkingSet {
  int64_t keys = 0;  // of all layers
  // With so many slots or fewer LRU hits nothing, whatever the accesses: between two uses of a key
  // all other layers' keys come by.
  int64_t lru_hits_nothing = 0;
};

// layer_keys: keys that each layer asks for, the same for every token.
WorkingSet WorkingSetOf(std::span<const int64_t> layer_keys);

}  // namespace hearth
