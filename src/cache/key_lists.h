// Doubly linked lists of keys, threaded through one flat array of nodes. Internal to src/cache.
//
// A node belongs to a key, not to a slot: keys of one layer lie together, so that a batch works in
// a few pages, and policies may keep keys on a list that hold no slot (what was evicted lately).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::cache {

inline constexpr int32_t kNoKey = -1;
inline constexpr uint16_t kNoList = UINT16_MAX;

struct KeyNode {
  int32_t slot = -1;      // -1: the key is absent
  int32_t prev = kNoKey;  // towards the head; undefined on no list
  int32_t next = kNoKey;  // towards the tail
  int32_t value = 0;      // the policy's own two, of absent keys too
  int32_t slow_value = 0;
  uint16_t list = kNoList;  // that the key is on
  uint8_t pins = 0;         // look-ups that were not released yet, and the read
  uint8_t loading = 0;      // a slot is held, its bytes are not there yet
};
static_assert(sizeof(KeyNode) == 24);

// Not thread-safe; nothing here allocates but the constructor.
class KeyLists {
 public:
  // `nodes`, one per key, outlive this.
  KeyLists(std::span<KeyNode> nodes, int num_lists)
      : nodes_(nodes.data()), lists_(static_cast<size_t>(num_lists)) {}

  KeyNode& node(int32_t key) noexcept { return nodes_[key]; }
  const KeyNode& node(int32_t key) const noexcept { return nodes_[key]; }
  int32_t tail(int list) const noexcept { return At(list).tail; }
  int64_t size(int list) const noexcept { return At(list).size; }
  // Of a list's keys, those without a pin.
  int64_t unpinned(int list) const noexcept { return At(list).unpinned; }

  // Fetch what a look-up of the key, and then an Unlink, will need.
  void Prefetch(int32_t key) const noexcept { __builtin_prefetch(&nodes_[key], 1); }
  void PrefetchNeighbours(int32_t key) const noexcept {
    const KeyNode& n = nodes_[key];
    if (n.list == kNoList) return;
    __builtin_prefetch(&nodes_[std::max(n.prev, 0)], 1);
    __builtin_prefetch(&nodes_[std::max(n.next, 0)], 1);
  }

  // The key is on no list.
  void PushHead(int list, int32_t key) noexcept {
    List& l = At(list);
    KeyNode& n = nodes_[key];
    n.list = static_cast<uint16_t>(list);
    n.prev = kNoKey;
    n.next = l.head;
    (l.head == kNoKey ? l.tail : nodes_[l.head].prev) = key;
    l.head = key;
    ++l.size;
    l.unpinned += n.pins == 0;
  }

  // The key is on a list.
  void Unlink(int32_t key) noexcept {
    KeyNode& n = nodes_[key];
    List& l = lists_[n.list];
    (n.prev == kNoKey ? l.head : nodes_[n.prev].next) = n.next;
    (n.next == kNoKey ? l.tail : nodes_[n.next].prev) = n.prev;
    n.list = kNoList;
    --l.size;
    l.unpinned -= n.pins == 0;
  }

  void MoveToHead(int list, int32_t key) noexcept {
    Unlink(key);
    PushHead(list, key);
  }

  // Takes the unpinned key nearest to the tail off the list; keys in use that stand in its way go
  // to the head. kNoKey where all are in use. Over a batch this costs a list's length at most.
  int32_t TakeUnpinned(int list) noexcept {
    while (At(list).unpinned > 0) {
      const int32_t key = At(list).tail;
      if (nodes_[key].pins == 0) {
        Unlink(key);
        return key;
      }
      MoveToHead(list, key);
    }
    return kNoKey;
  }

  // Pins count on whatever list the key is on.
  void Pin(KeyNode& n) noexcept {
    if (n.pins++ == 0 && n.list != kNoList) --lists_[n.list].unpinned;
  }
  void Unpin(KeyNode& n) noexcept {
    if (--n.pins == 0 && n.list != kNoList) ++lists_[n.list].unpinned;
  }

 private:
  struct List {
    int32_t head = kNoKey;
    int32_t tail = kNoKey;
    int64_t size = 0;
    int64_t unpinned = 0;
  };
  List& At(int list) noexcept { return lists_[static_cast<size_t>(list)]; }
  const List& At(int list) const noexcept { return lists_[static_cast<size_t>(list)]; }

  KeyNode* nodes_;
  std::vector<List> lists_;
};

}  // namespace hearth::cache
