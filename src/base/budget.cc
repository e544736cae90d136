#include "base/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace hearth {

BudgetCharge::BudgetCharge(BudgetCharge&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

BudgetCharge& BudgetCharge::operator=(BudgetCharge&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    name_ = std::move(other.name_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void BudgetCharge::Release() noexcept {
  if (budget_ != nullptr) budget_->Return(name_, bytes_);
  budget_ = nullptr;
  bytes_ = 0;
}

BudgetCharge Budget::Charge(std::string_view name, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    throw Error(ErrorCode::kOutOfBudget, "memory budget",
                fmt::format("{} needs {}, but only {} of {} are left", name, FormatSize(bytes),
                            FormatSize(limit_bytes_ - used_bytes_), FormatSize(limit_bytes_)));
  }
  std::string key(name);
  entries_[key] += bytes;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return BudgetCharge(this, std::move(key), bytes);
}

void Budget::Return(const std::string& name, uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return;
  entry->second -= bytes;
  used_bytes_ -= bytes;
  if (entry->second == 0) entries_.erase(entry);
}

uint64_t Budget::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

uint64_t Budget::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_bytes_;
}

std::map<std::string, uint64_t> Budget::Ledger() const {
  std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace hearth
