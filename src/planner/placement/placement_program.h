// An integer linear program and the solver for it. Internal to placement.cc.
#pragma once

#include <limits>
#include <vector>

namespace hearth {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// maximize sum(gain * x) with low <= row <= high and 0 <= x <= most.
class PlacementProgram {
 public:
  struct Term {
    int row;
    double factor;
  };

  // Both return the index of what was added.
  int AddRow(double low, double high);
  int AddColumn(double gain, double most, bool is_integer, std::vector<Term> terms);

  // The best x, with integers rounded; empty where no x is feasible. Throws Error(kInternal) where
  // the solver gives up.
  std::vector<double> Solve() const;

 private:
  struct Column {
    double gain;
    double most;
    bool is_integer;
    std::vector<Term> terms;
  };
  std::vector<Column> columns_;
  std::vector<double> lows_;
  std::vector<double> highs_;
};

}  // namespace hearth
