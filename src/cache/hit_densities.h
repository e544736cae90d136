// How often what a cache holds is used, by cells of entries that are alike. Internal to src/cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::cache {

// A cell's *density* is the share of its entries that a turn of their layer uses. Old turns are
// forgotten: after some 50 tokens they count half.
class HitDensities {
 public:
  // What each cell is taken for before it was seen; at most 30,000 of them.
  explicit HitDensities(std::span<const double> priors);

  // A turn found so many entries in the cell.
  void Offer(int cell, int64_t entries) noexcept {
    cells_[static_cast<size_t>(cell)].offered += static_cast<double>(entries);
  }
  // And used one of them.
  void Hit(int cell) noexcept { cells_[static_cast<size_t>(cell)].hits += 1; }
  void EndToken() noexcept;

  double density(int cell) const noexcept {
    const Cell& at = cells_[static_cast<size_t>(cell)];
    return at.hits / at.offered;
  }
  // All cells, the least dense first, as of a few tokens ago at most.
  std::span<const int16_t> order() const noexcept { return order_; }

 private:
  struct Cell {
    double hits, offered;
  };

  void Sort() noexcept;

  std::vector<Cell> cells_;
  std::vector<int16_t> order_;
  int tokens_ = 0;  // since they were put in order
};

}  // namespace hearth::cache
