#include "planner/placement_program.h"

#include <coin/Cbc_C_Interface.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

// Real models take less than one; a search that never ends helps nobody.
constexpr const char* kMostSeconds = "120";

}  // namespace

int PlacementProgram::AddRow(double low, double high) {
  lows_.push_back(low);
  highs_.push_back(high);
  return static_cast<int>(lows_.size()) - 1;
}

int PlacementProgram::AddColumn(double gain, double most, bool is_integer,
                                std::vector<Term> terms) {
  columns_.push_back({gain, most, is_integer, std::move(terms)});
  return static_cast<int>(columns_.size()) - 1;
}

std::vector<double> PlacementProgram::Solve() const {
  std::vector<CoinBigIndex> starts = {0};
  std::vector<int> rows;
  std::vector<double> factors, mosts, gains;
  for (const Column& column : columns_) {
    for (const Term& term : column.terms) {
      rows.push_back(term.row);
      factors.push_back(term.factor);
    }
    starts.push_back(static_cast<CoinBigIndex>(rows.size()));
    mosts.push_back(column.most);
    gains.push_back(column.gain);
  }
  const auto count = static_cast<int>(columns_.size());
  const std::vector<double> zeros(columns_.size(), 0.0);

  struct Delete {
    void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
  };
  const std::unique_ptr<Cbc_Model, Delete> model(Cbc_newModel());
  Cbc_loadProblem(model.get(), count, static_cast<int>(lows_.size()), starts.data(), rows.data(),
                  factors.data(), zeros.data(), mosts.data(), gains.data(), lows_.data(),
                  highs_.data());
  Cbc_setObjSense(model.get(), -1);
  for (int i = 0; i < count; ++i) {
    if (columns_[static_cast<size_t>(i)].is_integer) Cbc_setInteger(model.get(), i);
  }
  Cbc_setParameter(model.get(), "log", "0");
  Cbc_setParameter(model.get(), "ratioGap", "1e-6");
  Cbc_setParameter(model.get(), "sec", kMostSeconds);
  Cbc_solve(model.get());
  if (Cbc_isProvenInfeasible(model.get()) != 0) return {};
  if (Cbc_isProvenOptimal(model.get()) == 0) {
    throw Error(ErrorCode::kInternal, "placement",
                "the solver found no proof that an answer is the best one");
  }
  const double* const solution = Cbc_getColSolution(model.get());
  std::vector<double> x(solution, solution + count);
  for (size_t i = 0; i < x.size(); ++i) {
    if (columns_[i].is_integer) x[i] = std::round(x[i]);
  }
  return x;
}

}  // namespace hearth
