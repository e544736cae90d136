#include "planner/plan_menu.h"

#include <z3++.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/error.h"

namespace hearth {
namespace {

bool IsWithin(const MenuEntry& entry, const MenuLimits& limits) {
  return (!limits.most_threads || entry.threads <= *limits.most_threads) &&
         (!limits.most_bytes || entry.bytes <= *limits.most_bytes) &&
         (!limits.most_token_us || entry.token_us <= *limits.most_token_us);
}

// A time that no measurement tells apart from this one.
uint64_t NearlyAsFast(uint64_t token_us) { return token_us + token_us / 100; }

std::tuple<uint64_t, uint64_t, uint64_t> RankOf(const MenuEntry& entry, MenuGoal goal) {
  if (goal == MenuGoal::kFastest) return {entry.prompt_us, entry.token_us, entry.bytes};
  return {entry.bytes, entry.token_us, entry.prompt_us};
}

// The limits, and as fast as this one, nearly.
MenuLimits WithinReachOf(const MenuEntry& fastest, MenuLimits limits) {
  const uint64_t nearly = NearlyAsFast(fastest.token_us);
  limits.most_token_us = std::min(limits.most_token_us.value_or(nearly), nearly);
  return limits;
}

// The axes as variables, and speed and memory as tables over them.
class MenuModel {
 public:
  MenuModel(z3::context& context, const std::vector<MenuEntry>& menu)
      : axes_{context.int_const("threads"), context.int_const("strategy"),
              context.int_const("split"), context.int_const("budget")},
        token_us(context.int_const("token_us")),
        prompt_us(context.int_const("prompt_us")),
        bytes(context.int_const("bytes")),
        rows_(context) {
    z3::expr_vector any(context);
    for (const MenuEntry& entry : menu) {
      const z3::expr here = Is(context, entry);
      any.push_back(here);
      rows_.push_back(z3::implies(here, token_us == context.int_val(entry.token_us) &&
                                            prompt_us == context.int_val(entry.prompt_us) &&
                                            bytes == context.int_val(entry.bytes)));
    }
    rows_.push_back(z3::mk_or(any));
  }

  template <typename Solver>
  void AddTo(Solver& solver) const {
    for (unsigned i = 0; i < rows_.size(); ++i) solver.add(rows_[static_cast<int>(i)]);
  }

  // The limits that are given, by name.
  std::vector<std::pair<const char*, z3::expr>> Limits(z3::context& context,
                                                       const MenuLimits& limits) const {
    std::vector<std::pair<const char*, z3::expr>> all;
    if (limits.most_threads) all.emplace_back("threads", axes_[0] <= *limits.most_threads);
    if (limits.most_bytes) {
      all.emplace_back("memory", bytes <= context.int_val(*limits.most_bytes));
    }
    if (limits.most_token_us) {
      all.emplace_back("speed", token_us <= context.int_val(*limits.most_token_us));
    }
    return all;
  }

  // Whether a model of the formulas is at this entry.
  bool IsAt(const z3::model& model, const MenuEntry& entry) const {
    const std::array<int, 4> places = PlacesOf(entry);
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (model.eval(axes_[i], true).get_numeral_int() != places[i]) return false;
    }
    return true;
  }

 private:
  static std::array<int, 4> PlacesOf(const MenuEntry& entry) {
    return {entry.threads, entry.strategy, entry.split, entry.budget};
  }

  z3::expr Is(z3::context& context, const MenuEntry& entry) const {
    const std::array<int, 4> places = PlacesOf(entry);
    z3::expr all = context.bool_val(true);
    for (size_t i = 0; i < axes_.size(); ++i) all = all && axes_[i] == places[i];
    return all;
  }

  std::array<z3::expr, 4> axes_;

 public:
  z3::expr token_us, prompt_us, bytes;

 private:
  z3::expr_vector rows_;
};

// Which limits contradict each other: an unsatisfiable core, made minimal.
std::vector<std::string> ConflictOf(z3::context& context, const MenuModel& model,
                                    const MenuLimits& limits) {
  auto given = model.Limits(context, limits);
  const auto is_possible = [&](size_t left_out) {
    z3::solver solver(context);
    model.AddTo(solver);
    for (size_t i = 0; i < given.size(); ++i) {
      if (i != left_out) solver.add(given[i].second);
    }
    return solver.check() == z3::sat;
  };
  for (size_t i = 0; i < given.size();) {
    if (is_possible(i)) {
      ++i;
    } else {
      given.erase(given.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, limit] : given) names.emplace_back(name);
  return names;
}

}  // namespace

MenuChoice SolveMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits, MenuGoal goal) {
  try {
    z3::context context;
    const MenuModel model(context, menu);
    // Objectives are met in the order in which they are named.
    const auto solve = [&](const MenuLimits& within,
                           const std::vector<z3::expr>& objectives) -> std::optional<size_t> {
      z3::optimize solver(context);
      model.AddTo(solver);
      for (const auto& [name, limit] : model.Limits(context, within)) solver.add(limit);
      for (const z3::expr& objective : objectives) solver.minimize(objective);
      if (solver.check() != z3::sat) return std::nullopt;
      const z3::model found = solver.get_model();
      for (size_t i = 0; i < menu.size(); ++i) {
        if (model.IsAt(found, menu[i])) return i;
      }
      throw Error(ErrorCode::kInternal, "plan", "the solver chose what is not on the menu");
    };
    std::optional<size_t> entry;
    if (goal == MenuGoal::kLeastMemory) {
      entry = solve(limits, {model.bytes, model.token_us, model.prompt_us});
    } else if (const auto fastest = solve(limits, {model.token_us})) {
      entry = solve(WithinReachOf(menu[*fastest], limits),
                    {model.prompt_us, model.token_us, model.bytes});
    }
    if (!entry) return {{}, ConflictOf(context, model, limits)};
    return {entry, {}};
  } catch (const z3::exception& error) {
    throw Error(ErrorCode::kInternal, "plan", std::string("the solver failed: ") + error.msg());
  }
}

MenuChoice SearchMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits, MenuGoal goal) {
  const auto best = [&](const MenuLimits& within, const auto& rank_of) {
    std::optional<size_t> found;
    for (size_t i = 0; i < menu.size(); ++i) {
      if (!IsWithin(menu[i], within)) continue;
      if (!found || rank_of(menu[i]) < rank_of(menu[*found])) found = i;
    }
    return found;
  };
  const auto rank = [goal](const MenuEntry& entry) { return RankOf(entry, goal); };
  if (goal == MenuGoal::kLeastMemory) return {best(limits, rank), {}};
  const auto fastest = best(limits, [](const MenuEntry& entry) { return entry.token_us; });
  if (!fastest) return {};
  return {best(WithinReachOf(menu[*fastest], limits), rank), {}};
}

}  // namespace hearth
