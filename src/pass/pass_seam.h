// Everything that happens between the formulas of a pass, in one place: timing, keeping reads
// going, and ending a pass that nobody wants any more.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include "base/error.h"
#include "pass/pass_observer.h"
#include "pass/pass_op.h"

namespace hearth {

using OpSeconds = std::array<double, kNumPassOps>;

// Called by the thread that runs the pass. Costs some branches per op where nobody listens.
class PassSeam {
 public:
  // Adds the wall time of every op to `seconds` from now on, which must live as long; null records
  // nothing.
  void Record(OpSeconds* seconds) { seconds_ = seconds; }
  // Asked before every layer; true ends the pass with Error(kCancelled). Null: never.
  void StopWhen(std::function<bool()> is_unwanted) { is_unwanted_ = std::move(is_unwanted); }
  // Told of every op that is done; must not throw.
  void Tell(std::function<void(PassOp)> listener) { listener_ = std::move(listener); }

  // Whom the pass that begins shows inputs of matrices to; null: nobody.
  void Show(PassObserver* observer) { observer_ = observer; }
  bool is_watched() const { return observer_ != nullptr; }
  void Saw(int64_t layer, MatrixInput which, FloatView input) const {
    if (observer_ != nullptr) observer_->OnMatrixInput(layer, which, input);
  }

  // The clock's time since the last op belongs to nobody.
  void Start() {
    if (seconds_ != nullptr) last_ = Clock::now();
  }
  // An op is done: all time since the op before was its own.
  void After(PassOp op) {
    if (seconds_ != nullptr) TakeTime(op);
    if (listener_) listener_(op);
  }
  void BeforeLayer() const {
    if (is_unwanted_ && is_unwanted_()) {
      throw Error(ErrorCode::kCancelled, "batch", "nobody waits for it any more");
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void TakeTime(PassOp op) {
    const Clock::time_point now = Clock::now();
    (*seconds_)[static_cast<size_t>(op)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

  PassObserver* observer_ = nullptr;
  OpSeconds* seconds_ = nullptr;
  Clock::time_point last_;
  std::function<bool()> is_unwanted_;
  std::function<void(PassOp)> listener_;
};

}  // namespace hearth
