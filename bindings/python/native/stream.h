// What a request generates, on its way from the model's thread to Python.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <hearth/hearth.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hearth::python {

// Where the model's thread leaves what it has and Python's threads wait for it; the model's thread
// never needs the interpreter's lock.
class Mailbox {
 public:
  void PutText(std::string_view text, std::vector<api::ScoredToken> scores);
  void PutEnd(api::Outcome outcome, std::vector<float> embedding = {});

  // With the interpreter's lock, which is given away meanwhile. Wait until there is a text, or the
  // end. Where a signal handler raises an exception (Ctrl-C) on_interrupt is called and it is
  // thrown.
  std::optional<std::string> TakeText(const std::function<void()>& on_interrupt);
  const api::Outcome& WaitForEnd(const std::function<void()>& on_interrupt);

  // After the end, when nobody writes any more.
  const api::Outcome& outcome() const { return *outcome_; }
  const std::vector<float>& embedding() const { return embedding_; }
  const std::vector<api::ScoredToken>& scores() const { return scores_; }

 private:
  template <typename Ready>
  void WaitUntil(const Ready& ready, const std::function<void()>& on_interrupt);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> texts_;         // guarded by mutex_
  std::vector<api::ScoredToken> scores_;  // guarded by mutex_
  std::optional<api::Outcome> outcome_;   // guarded by mutex_; set once, last
  std::vector<float> embedding_;          // set before outcome_
};

// Throws api::Error in a process that was forked from the one with number `owner`: a model's
// threads are not there.
void CheckProcess(pid_t owner);

// A request under way, as Python sees it. With the interpreter's lock.
class Stream {
 public:
  Stream(std::shared_ptr<Mailbox> mailbox, api::Ticket ticket);
  // Dropping it ends the request.
  ~Stream() { Cancel(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The next text, not empty; None at the end. Throws what the request failed of.
  pybind11::object Next();
  // Waits for the end and says how it came; throws what the request failed of.
  pybind11::dict Finish();
  void Cancel();

 private:
  std::shared_ptr<Mailbox> mailbox_;
  api::Ticket ticket_;
  const pid_t owner_ = getpid();
};

void BindStream(pybind11::module_& module);

}  // namespace hearth::python
