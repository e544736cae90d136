#include "planner/placement/placement_program.h"

#include <coin/Cbc_C_Interface.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/system_library.h"

namespace hearth {
namespace {

// Real models take less than one; a search that never ends helps nobody.
constexpr const char* kMostSeconds = "120";

// CBC's functions. The program does not link it: its code and LAPACK's take 18 MB.
struct Cbc {
  decltype(&::Cbc_newModel) make = nullptr;
  decltype(&::Cbc_deleteModel) destroy = nullptr;
  decltype(&::Cbc_loadProblem) load = nullptr;
  decltype(&::Cbc_setObjSense) set_sense = nullptr;
  decltype(&::Cbc_setInteger) set_integer = nullptr;
  decltype(&::Cbc_setParameter) set_parameter = nullptr;
  decltype(&::Cbc_solve) solve = nullptr;
  decltype(&::Cbc_isProvenInfeasible) is_infeasible = nullptr;
  decltype(&::Cbc_isProvenOptimal) is_optimal = nullptr;
  decltype(&::Cbc_getColSolution) solution = nullptr;

  Cbc() {
    constexpr const char* kNames[] = {"libCbcSolver.so.3", "libCbcSolver.so"};
    const SystemLibrary library(kNames, "placing neurons", "coinor-libcbc3");
    library.Find("Cbc_newModel", make);
    library.Find("Cbc_deleteModel", destroy);
    library.Find("Cbc_loadProblem", load);
    library.Find("Cbc_setObjSense", set_sense);
    library.Find("Cbc_setInteger", set_integer);
    library.Find("Cbc_setParameter", set_parameter);
    library.Find("Cbc_solve", solve);
    library.Find("Cbc_isProvenInfeasible", is_infeasible);
    library.Find("Cbc_isProvenOptimal", is_optimal);
    library.Find("Cbc_getColSolution", solution);
  }
};

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

  static const Cbc kCbc;
  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model(kCbc.make(), kCbc.destroy);
  kCbc.load(model.get(), count, static_cast<int>(lows_.size()), starts.data(), rows.data(),
            factors.data(), zeros.data(), mosts.data(), gains.data(), lows_.data(), highs_.data());
  kCbc.set_sense(model.get(), -1);
  for (int i = 0; i < count; ++i) {
    if (columns_[static_cast<size_t>(i)].is_integer) kCbc.set_integer(model.get(), i);
  }
  kCbc.set_parameter(model.get(), "log", "0");
  kCbc.set_parameter(model.get(), "ratioGap", "1e-6");
  kCbc.set_parameter(model.get(), "sec", kMostSeconds);
  kCbc.solve(model.get());
  if (kCbc.is_infeasible(model.get()) != 0) return {};
  if (kCbc.is_optimal(model.get()) == 0) {
    throw Error(ErrorCode::kInternal, "placement",
                "the solver found no proof that an answer is the best one");
  }
  const double* const solution = kCbc.solution(model.get());
  std::vector<double> x(solution, solution + count);
  for (size_t i = 0; i < x.size(); ++i) {
    if (columns_[i].is_integer) x[i] = std::round(x[i]);
  }
  return x;
}

}  // namespace hearth
