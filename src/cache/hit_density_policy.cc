#include "cache/hit_density_policy.h"

#include <algorithm>
#include <cmath>

namespace hearth::cache {
namespace {

using This = HitDensityPolicy;

// The cell of a place and a slow class, and list of a band, or of what is by age (kBands).
constexpr int At(int place_or_band, int slow_class) {
  return place_or_band * This::kSlowClasses + slow_class;
}

// The lowest level that a band can have below the clock; places go up from here.
constexpr int32_t kLowestPlace = This::kLowLevel - This::kPlaceLevels;

}  // namespace

HitDensityPolicy::HitDensityPolicy(std::span<KeyNode> nodes, int32_t num_layers)
    : Policy(nodes, num_layers * kLists),
      fast_levels_(kLevelsPerOctave, kLowLevel, kTopLevel),
      slow_levels_(kSlowLevelsPerOctave, kLowSlowLevel, kTopSlowLevel),
      layers_(static_cast<size_t>(num_layers)),
      turns_(std::ssize(nodes), num_layers),
      densities_(Priors()) {
  for (KeyNode& node : nodes) node.value = node.slow_value = kNeverUsed;
}

// A tenth of the larger count, where the slow one is worth little: near what was measured for
// neurons of several models, and soon outweighed.
std::vector<double> HitDensityPolicy::Priors() {
  constexpr double kSlowWorth = 1.0 / 256;
  std::vector<double> priors(kCells);
  for (int place = 0; place < kPlaces; ++place) {
    const double level = kLowestPlace + kPlaceLevels * (place - 1) + 0.5 * kBandLevels;
    for (int slow = 0; slow < kSlowClasses; ++slow) {
      const double count =
          std::max(std::exp2(level / kLevelsPerOctave), std::exp2(slow + 0.5) * kSlowWorth);
      priors[static_cast<size_t>(At(place, slow))] = std::min(0.9, 0.1 * count);
    }
  }
  return priors;
}

// Of a list of the layer, without those of the layers before it.
int HitDensityPolicy::CellOf(int32_t layer, int list) const noexcept {
  const int band_of_ring = list / kSlowClasses, slow = list % kSlowClasses;
  if (band_of_ring == kBands) return At(0, slow);
  const int32_t clock = layers_[static_cast<size_t>(layer)].clock();
  const int32_t lowest = (clock + kLowLevel) >> 2;  // band
  const int32_t band = lowest + ((band_of_ring - lowest) & (kBands - 1));
  return At(1 + (band * kBandLevels - clock - kLowestPlace) / kPlaceLevels, slow);
}

// -1 where no band of the layer is in the cell's place now.
int HitDensityPolicy::ListOf(int32_t layer, int cell) const noexcept {
  const int place = cell / kSlowClasses, slow = cell % kSlowClasses;
  if (place == 0) return layer * kLists + At(kBands, slow);
  const int32_t clock = layers_[static_cast<size_t>(layer)].clock();
  const int32_t value = kLowestPlace + kPlaceLevels * (place - 1) + clock;
  if (value % kBandLevels != 0) return -1;
  return layer * kLists + At((value >> 2) & (kBands - 1), slow);
}
static_assert(HitDensityPolicy::kBandLevels == 1 << 2);

void HitDensityPolicy::Place(int32_t layer, int32_t key) noexcept {
  const KeyNode& node = lists_.node(key);
  const int32_t slow_level = node.slow_value - layers_[static_cast<size_t>(layer)].slow_clock();
  const int slow = std::clamp(slow_level / kSlowLevelsPerOctave, 0, kSlowClasses - 1);
  lists_.PushHead(layer * kLists + At((node.value >> 2) & (kBands - 1), slow), key);
}

void HitDensityPolicy::Use(int32_t layer, int32_t key) noexcept {
  const Layer& at = layers_[static_cast<size_t>(layer)];
  KeyNode& node = lists_.node(key);
  node.value = at.clock() + fast_levels_.Raised(node.value - at.clock());
  node.slow_value = at.slow_clock() + slow_levels_.Raised(node.slow_value - at.slow_clock());
  Place(layer, key);
}

// Every second turn the lowest band falls out of the ring.
void HitDensityPolicy::TakeTurn(int32_t layer) noexcept {
  Layer& at = layers_[static_cast<size_t>(layer)];
  ++at.turns;
  if (at.clock() % kBandLevels != 0) return;
  const int32_t leaving = ((at.clock() + kLowLevel) >> 2) - 1;
  for (int slow = 0; slow < kSlowClasses; ++slow) {
    const int list = layer * kLists + At(leaving & (kBands - 1), slow);
    while (lists_.size(list) > 0) {
      lists_.MoveToHead(layer * kLists + At(kBands, slow), lists_.tail(list));
    }
  }
}

void HitDensityPolicy::OfferAll(int32_t layer) noexcept {
  for (int list = 0; list < kLists; ++list) {
    const int64_t size = lists_.size(layer * kLists + list);
    if (size > 0) densities_.Offer(CellOf(layer, list), size);
  }
}

void HitDensityPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  victims_ = -1;
  next_cell_ = 0;
  if (entries.empty()) return;
  const bool begins = turns_.Begin(batch.key(0));
  const int32_t layer = turns_.current();
  if (begins) {
    TakeTurn(layer);
    OfferAll(layer);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot < 0) continue;
    const int32_t key = batch.first_key + batch.offsets[i];
    densities_.Hit(CellOf(layer, lists_.node(key).list - layer * kLists));
    lists_.Unlink(key);
    Use(layer, key);
  }
}

void HitDensityPolicy::Insert(int32_t key) noexcept { Use(turns_.current(), key); }

// As if the hottest had just been used once, and had been in some 1/11 of all turns: what texts do
// use comes before it.
void HitDensityPolicy::Seed(int32_t key, int64_t rank, int64_t count) noexcept {
  constexpr int64_t kHottestSlowLevel = 5 * kSlowLevelsPerOctave;
  KeyNode& node = lists_.node(key);
  node.value = static_cast<int32_t>(rank * kLowLevel / count);
  node.slow_value = static_cast<int32_t>((count - rank) * kHottestSlowLevel / count);
  Place(turns_.LayerOf(key), key);
}

void HitDensityPolicy::EndToken() noexcept {
  turns_.EndToken();
  densities_.EndToken();
}

int32_t HitDensityPolicy::TakeFrom(int32_t layer, int cell) noexcept {
  const int list = ListOf(layer, cell);
  if (list < 0 || lists_.unpinned(list) == 0) return kNoKey;
  victims_ = list;
  return lists_.TakeUnpinned(list);
}

int32_t HitDensityPolicy::TakeVictim() noexcept {
  // While a batch is admitted nothing is released and what comes in is in use: what had no entry
  // before has none now.
  if (victims_ >= 0 && lists_.unpinned(victims_) > 0) return lists_.TakeUnpinned(victims_);
  const std::span<const int16_t> order = densities_.order();
  for (; next_cell_ < order.size(); ++next_cell_) {
    for (int32_t back = turns_.goes_on() ? 1 : 0; back < turns_.num_layers(); ++back) {
      const int32_t key = TakeFrom(turns_.Back(back), order[next_cell_]);
      if (key != kNoKey) return key;
    }
  }
  for (const int16_t cell : order) {
    const int32_t key = TakeFrom(turns_.current(), cell);
    if (key != kNoKey) return key;
  }
  return kNoKey;
}

}  // namespace hearth::cache
