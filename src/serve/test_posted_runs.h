// What models' threads post to the thread of a test, which stands for the server's. For tests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace hearth::serve {

class PostedRuns {
 public:
  // Any thread.
  void Post(std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    runs_.push_back(std::move(run));
    arrived_.notify_one();
  }
  // Runs the next one, and waits for it where there is none yet.
  void RunOne() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !runs_.empty(); });
    const auto run = std::move(runs_.front());
    runs_.pop_front();
    lock.unlock();
    run();
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    runs_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> runs_;  // guarded by mutex_
};

}  // namespace hearth::serve
