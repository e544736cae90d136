#include "prepare/pack/ordered_work.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace hearth {
namespace {

// Turns cannot deadlock: pieces are given out in order, so that the worker whose turn it is always
// holds its piece, and it waits for nobody.
class OrderedSection {
 public:
  OrderedSection(size_t pieces, const PieceFn& make, const PieceFn* take)
      : pieces_(pieces), make_(make), take_(take) {}

  void Run(WorkerTeam& team) {
    team.Run([this](int worker) { Work(worker); });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Work(int worker) noexcept {
    try {
      for (size_t piece = next_++; piece < pieces_ && !stop_; piece = next_++) {
        make_(worker, piece);
        if (take_ == nullptr) continue;
        if (!AwaitTurn(piece)) return;
        (*take_)(worker, piece);
        PassTurn();
      }
    } catch (...) {
      Fail(std::current_exception());
    }
  }

  // False where the work has failed elsewhere.
  bool AwaitTurn(size_t piece) {
    std::unique_lock lock(mutex_);
    turn_changed_.wait(lock, [&] { return turn_ == piece || stop_; });
    return !stop_;
  }
  void PassTurn() {
    {
      const std::lock_guard lock(mutex_);
      ++turn_;
    }
    turn_changed_.notify_all();
  }
  void Fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(error);
      stop_ = true;
    }
    turn_changed_.notify_all();
  }

  const size_t pieces_;
  const PieceFn& make_;
  const PieceFn* take_;
  std::atomic<size_t> next_{0};    // piece to give out
  std::atomic<bool> stop_{false};  // raised with mutex_ held
  std::mutex mutex_;
  std::condition_variable turn_changed_;
  size_t turn_ = 0;           // piece to take; guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_ while workers run
};

}  // namespace

void RunPieces(WorkerTeam& team, size_t pieces, const PieceFn& work) {
  OrderedSection(pieces, work, nullptr).Run(team);
}

void RunPiecesInOrder(WorkerTeam& team, size_t pieces, const PieceFn& make, const PieceFn& take) {
  OrderedSection(pieces, make, &take).Run(team);
}

}  // namespace hearth
