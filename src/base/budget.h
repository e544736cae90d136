// The ledger of large allocations (docs/architecture.md, "The budget is a promise").
//
// Every large buffer of a run is an entry with a name ("weights", "kv cache", "activations").
// A budget may have a limit; a charge that would pass it is refused before anything is allocated.
// That is the backstop: what a user asks for is refused earlier, with the smallest limit that
// works, by CheckBudget (engine/load/engine_plan.h).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace hearth {

class Budget;

// A share of the ledger, given back when it is destroyed. Movable; an empty one holds nothing.
// It keeps a pointer to its Budget, which must outlive it.
class BudgetCharge {
 public:
  BudgetCharge() = default;
  BudgetCharge(BudgetCharge&& other) noexcept;
  BudgetCharge& operator=(BudgetCharge&& other) noexcept;
  BudgetCharge(const BudgetCharge&) = delete;
  BudgetCharge& operator=(const BudgetCharge&) = delete;
  ~BudgetCharge() { Release(); }

  uint64_t bytes() const noexcept { return bytes_; }
  void Release() noexcept;

 private:
  friend class Budget;
  BudgetCharge(Budget* budget, std::string name, uint64_t bytes)
      : budget_(budget), name_(std::move(name)), bytes_(bytes) {}

  Budget* budget_ = nullptr;
  std::string name_;
  uint64_t bytes_ = 0;
};

// Thread-safe.
class Budget {
 public:
  static constexpr uint64_t kUnlimited = UINT64_MAX;

  explicit Budget(uint64_t limit_bytes = kUnlimited) : limit_bytes_(limit_bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Enters `bytes` under `name` until the charge is destroyed.
  // Throws Error(kOutOfBudget), with nothing entered, where the sum would pass the limit.
  BudgetCharge Charge(std::string_view name, uint64_t bytes);

  uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  uint64_t used_bytes() const;
  uint64_t peak_bytes() const;

  // Bytes in force by name, for reports. Names with nothing in force are left out.
  std::map<std::string, uint64_t> Ledger() const;

 private:
  friend class BudgetCharge;
  void Return(const std::string& name, uint64_t bytes) noexcept;

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> entries_;  // guarded by mutex_
  uint64_t used_bytes_ = 0;                  // guarded by mutex_
  uint64_t peak_bytes_ = 0;                  // guarded by mutex_
};

}  // namespace hearth
