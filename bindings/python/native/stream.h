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
#include <utility>
#include <vector>

namespace hearth::python {

// How an answer is read: of a conversation, what its template says.
struct AnswerForm {
  std::shared_ptr<const api::ToolFormat> tools;  // null: nothing may be called
  std::optional<api::Thinking> thinking;         // nothing: it has no thoughts
};

// Tells an answer's text from its thoughts and its calls, while it comes. One thread.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerForm& form);

  // What the next piece adds to the text; perhaps nothing.
  std::string Push(std::string_view piece);
  std::string Finish();

  const std::string& thoughts() const { return thoughts_; }
  // Without ids.
  const std::vector<api::ToolCall>& calls() const { return calls_; }
  // It called something, and the last call is whole.
  bool ends_in_calls() const { return reader_.ends_in_calls(); }

 private:
  std::string AddParts(const std::vector<api::AnswerPart>& parts);

  api::AnswerReader reader_;
  std::string thoughts_;
  std::vector<api::ToolCall> calls_;
};

// Where the model's thread leaves what it has and Python's threads wait for it; the model's thread
// never needs the interpreter's lock.
class Mailbox {
 public:
  Mailbox() = default;
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void PutProgress(int64_t done_tokens, int64_t total_tokens);
  void PutText(std::string_view text, std::vector<api::ScoredToken> scores);
  void PutEnd(api::Outcome outcome, std::vector<float> embedding = {});

  struct Item {
    std::optional<std::pair<int64_t, int64_t>> progress;  // the newest; or
    std::string text;
  };
  // With the interpreter's lock, which is given away meanwhile. Wait until there is something, or
  // the end, where TakeItem has nothing. Where a signal handler raises an exception (Ctrl-C)
  // on_interrupt is called and it is thrown.
  std::optional<Item> TakeItem(const std::function<void()>& on_interrupt);
  const api::Outcome& WaitForEnd(const std::function<void()>& on_interrupt);

  // Whether TakeItem would not wait.
  bool IsReady();
  // A descriptor that can be read once TakeItem would not wait, from the time on that IsReady said
  // no. The mailbox's. Throws api::Error(kIo).
  int Descriptor();

  // After the end, when nobody writes any more.
  const api::Outcome& outcome() const { return *outcome_; }
  const std::vector<float>& embedding() const { return embedding_; }
  const std::vector<api::ScoredToken>& scores() const { return scores_; }

 private:
  template <typename Ready>
  void WaitUntil(const Ready& ready, const std::function<void()>& on_interrupt);
  bool HasItem() const { return progress_ || !texts_.empty() || outcome_; }
  void Signal();

  std::mutex mutex_;
  std::condition_variable changed_;
  int event_ = -1;  // an eventfd, once somebody asked for it; guarded by mutex_
  std::optional<std::pair<int64_t, int64_t>> progress_;  // guarded by mutex_
  std::deque<std::string> texts_;                        // guarded by mutex_
  std::vector<api::ScoredToken> scores_;                 // guarded by mutex_
  std::optional<api::Outcome> outcome_;                  // guarded by mutex_; set once, last
  std::vector<float> embedding_;                         // set before outcome_
};

// Throws api::Error in a process that was forked from the one with number `owner`: a model's
// threads are not there.
void CheckProcess(pid_t owner);

// A request under way, as Python sees it. With the interpreter's lock.
class Stream {
 public:
  Stream(std::shared_ptr<Mailbox> mailbox, api::Ticket ticket, const AnswerForm& form);
  // Dropping it ends the request.
  ~Stream() { Cancel(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The next text; a pair of tokens, computed and all, where the prompt has gone on; None at the
  // end. Where it should not wait, and nothing is there, an empty text. Throws what the request
  // failed of.
  pybind11::object Next(bool wait);
  // Can be read when there may be something, after Next had nothing. The stream's.
  int Descriptor() { return mailbox_->Descriptor(); }
  // What it thought so far.
  pybind11::str Thoughts() const;
  // Waits for the end and says how it came; throws what the request failed of.
  pybind11::dict Finish();
  void Cancel();

 private:
  std::shared_ptr<Mailbox> mailbox_;
  api::Ticket ticket_;
  AnswerReader reader_;
  bool is_read_ = false;  // the reader has finished
  const pid_t owner_ = getpid();
};

void BindStream(pybind11::module_& module);

}  // namespace hearth::python
