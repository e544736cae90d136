#include "planner/cost/plan_menu.h"

#include <fmt/format.h>
#include <z3.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/system_library.h"

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

std::string PlaceOf(const MenuEntry& entry) {
  return fmt::format(
      "(and (= threads {}) (= strategy {}) (= split {}) (= budget {}) (= io_thread {}))",
      entry.threads, entry.strategy, entry.split, entry.budget, entry.io_thread);
}

// Z3's functions. The program gives it SMT-LIB, and links none of it: its code takes 23 MB.
struct Z3 {
  decltype(&::Z3_mk_config) make_config = nullptr;
  decltype(&::Z3_del_config) delete_config = nullptr;
  decltype(&::Z3_mk_context) make_context = nullptr;
  decltype(&::Z3_del_context) delete_context = nullptr;
  decltype(&::Z3_set_error_handler) set_error_handler = nullptr;
  decltype(&::Z3_get_error_code) error_code = nullptr;
  decltype(&::Z3_get_error_msg) error_text = nullptr;
  decltype(&::Z3_mk_optimize) make_optimizer = nullptr;
  decltype(&::Z3_optimize_inc_ref) keep = nullptr;
  decltype(&::Z3_optimize_dec_ref) release = nullptr;
  decltype(&::Z3_optimize_from_string) read = nullptr;
  decltype(&::Z3_optimize_check) check = nullptr;
  decltype(&::Z3_optimize_get_model) model = nullptr;
  decltype(&::Z3_model_to_string) print_model = nullptr;

  Z3() {
    constexpr const char* kNames[] = {"libz3.so.4", "libz3.so"};
    const SystemLibrary library(kNames, "planning", "libz3-4");
    library.Find("Z3_mk_config", make_config);
    library.Find("Z3_del_config", delete_config);
    library.Find("Z3_mk_context", make_context);
    library.Find("Z3_del_context", delete_context);
    library.Find("Z3_set_error_handler", set_error_handler);
    library.Find("Z3_get_error_code", error_code);
    library.Find("Z3_get_error_msg", error_text);
    library.Find("Z3_mk_optimize", make_optimizer);
    library.Find("Z3_optimize_inc_ref", keep);
    library.Find("Z3_optimize_dec_ref", release);
    library.Find("Z3_optimize_from_string", read);
    library.Find("Z3_optimize_check", check);
    library.Find("Z3_optimize_get_model", model);
    library.Find("Z3_model_to_string", print_model);
  }
};

// A script of declarations, assertions and objectives, solved.
class Solver {
 public:
  explicit Solver(const std::string& script) {
    const Z3_config config = z3_.make_config();
    context_ = z3_.make_context(config);
    z3_.delete_config(config);
    z3_.set_error_handler(context_, [](Z3_context, Z3_error_code) {});  // asked for below
    optimizer_ = z3_.make_optimizer(context_);
    z3_.keep(context_, optimizer_);
    z3_.read(context_, optimizer_, script.c_str());
    CheckError();
  }
  ~Solver() {
    z3_.release(context_, optimizer_);
    z3_.delete_context(context_);
  }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // What the variables are where all assertions hold, and the objectives are least in the order in
  // which they are named; nothing where the assertions contradict each other. Throws
  // Error(kInternal) where the solver gives up.
  std::optional<std::map<std::string, int64_t>> Solve() {
    const Z3_lbool found = z3_.check(context_, optimizer_, 0, nullptr);
    CheckError();
    if (found == Z3_L_UNDEF) throw Error(ErrorCode::kInternal, "plan", "the solver gave up");
    if (found == Z3_L_FALSE) return std::nullopt;
    return Values(z3_.print_model(context_, z3_.model(context_, optimizer_)));
  }

 private:
  static const Z3& Loaded() {
    static const Z3 kZ3;
    return kZ3;
  }

  void CheckError() const {
    const Z3_error_code code = z3_.error_code(context_);
    if (code == Z3_OK) return;
    throw Error(ErrorCode::kInternal, "plan",
                std::string("the solver failed: ") + z3_.error_text(context_, code));
  }

  // "threads -> 2\nsplit -> 0\n..."
  static std::map<std::string, int64_t> Values(const std::string& printed) {
    std::map<std::string, int64_t> values;
    std::istringstream lines(printed);
    std::string name, arrow;
    int64_t value = 0;
    while (lines >> name >> arrow >> value) values[name] = value;
    return values;
  }

  const Z3& z3_ = Loaded();
  Z3_context context_ = nullptr;
  Z3_optimize optimizer_ = nullptr;
};

std::string FormulasOf(const MenuLimits& limits) {
  std::string script;
  if (limits.most_threads) {
    script += fmt::format("(assert (<= threads {}))\n", *limits.most_threads);
  }
  if (limits.most_bytes) script += fmt::format("(assert (<= bytes {}))\n", *limits.most_bytes);
  if (limits.most_token_us) {
    script += fmt::format("(assert (<= token_us {}))\n", *limits.most_token_us);
  }
  return script;
}

// The axes as variables, and speed and memory as tables over them.
std::string ScriptOf(const std::vector<MenuEntry>& menu) {
  std::string script;
  for (const char* name :
       {"threads", "strategy", "split", "budget", "io_thread", "token_us", "prompt_us", "bytes"}) {
    script += fmt::format("(declare-const {} Int)\n", name);
  }
  std::string any;
  for (const MenuEntry& entry : menu) {
    const std::string here = PlaceOf(entry);
    any += " " + here;
    script += fmt::format("(assert (=> {} (and (= token_us {}) (= prompt_us {}) (= bytes {}))))\n",
                          here, entry.token_us, entry.prompt_us, entry.bytes);
  }
  return script + "(assert (or false" + any + "))\n";
}

// Lifts one limit; false where there was none.
bool Lift(MenuLimit limit, MenuLimits& limits) {
  const MenuLimits before = limits;
  if (limit == MenuLimit::kThreads) limits.most_threads.reset();
  if (limit == MenuLimit::kMemory) limits.most_bytes.reset();
  if (limit == MenuLimit::kSpeed) limits.most_token_us.reset();
  return limits.most_threads != before.most_threads || limits.most_bytes != before.most_bytes ||
         limits.most_token_us != before.most_token_us;
}

// Takes away every limit without which nothing is met either. can_meet(limits): whether an entry
// meets them.
template <typename CanMeet>
std::vector<MenuLimit> LeastConflict(MenuLimits limits, const CanMeet& can_meet) {
  if (can_meet(limits) || !can_meet(MenuLimits{})) return {};
  std::vector<MenuLimit> conflict;
  for (const MenuLimit limit : {MenuLimit::kThreads, MenuLimit::kMemory, MenuLimit::kSpeed}) {
    MenuLimits others = limits;
    if (!Lift(limit, others)) continue;
    if (can_meet(others)) {
      conflict.push_back(limit);
    } else {
      limits = others;
    }
  }
  return conflict;
}

// The entry that meets the objectives, in the order in which they are named; nothing: no entry is
// within the limits.
std::optional<size_t> Optimize(const std::vector<MenuEntry>& menu, const std::string& tables,
                               const MenuLimits& limits,
                               std::initializer_list<const char*> objectives) {
  std::string script = tables + FormulasOf(limits);
  for (const char* objective : objectives) script += fmt::format("(minimize {})\n", objective);
  const auto found = Solver(script).Solve();
  if (!found) return std::nullopt;
  const auto place = [&](const char* axis) {
    const auto value = found->find(axis);
    return value != found->end() ? value->second : -1;
  };
  const auto is_at = [&](const MenuEntry& entry) {
    return place("threads") == entry.threads && place("strategy") == entry.strategy &&
           place("split") == entry.split && place("budget") == entry.budget &&
           place("io_thread") == entry.io_thread;
  };
  for (size_t i = 0; i < menu.size(); ++i) {
    if (is_at(menu[i])) return i;
  }
  throw Error(ErrorCode::kInternal, "plan", "the solver chose what is not on the menu");
}

}  // namespace

std::optional<size_t> SolveMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits,
                                MenuGoal goal) {
  const std::string tables = ScriptOf(menu);
  if (goal == MenuGoal::kLeastMemory) {
    return Optimize(menu, tables, limits, {"bytes", "token_us", "prompt_us"});
  }
  const auto fastest = Optimize(menu, tables, limits, {"token_us"});
  if (!fastest) return std::nullopt;
  return Optimize(menu, tables, WithinReachOf(menu[*fastest], limits),
                  {"prompt_us", "token_us", "bytes"});
}

std::optional<size_t> SearchMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits,
                                 MenuGoal goal) {
  const auto best = [&](const MenuLimits& within, const auto& rank_of) {
    std::optional<size_t> found;
    for (size_t i = 0; i < menu.size(); ++i) {
      if (!IsWithin(menu[i], within)) continue;
      if (!found || rank_of(menu[i]) < rank_of(menu[*found])) found = i;
    }
    return found;
  };
  const auto rank = [goal](const MenuEntry& entry) { return RankOf(entry, goal); };
  if (goal == MenuGoal::kLeastMemory) return best(limits, rank);
  const auto fastest = best(limits, [](const MenuEntry& entry) { return entry.token_us; });
  if (!fastest) return std::nullopt;
  return best(WithinReachOf(menu[*fastest], limits), rank);
}

std::vector<MenuLimit> SolveConflict(const std::vector<MenuEntry>& menu, const MenuLimits& limits) {
  const std::string tables = ScriptOf(menu);
  return LeastConflict(limits, [&](const MenuLimits& some) {
    return Solver(tables + FormulasOf(some)).Solve().has_value();
  });
}

std::vector<MenuLimit> SearchConflict(const std::vector<MenuEntry>& menu,
                                      const MenuLimits& limits) {
  return LeastConflict(limits, [&](const MenuLimits& some) {
    return std::any_of(menu.begin(), menu.end(),
                       [&](const MenuEntry& entry) { return IsWithin(entry, some); });
  });
}

}  // namespace hearth
