#include "stream.h"

#include <pybind11/stl.h>

#include <chrono>
#include <utility>

#include "text.h"
#include "without_gil.h"

namespace hearth::python {
namespace {

namespace py = pybind11;

// How soon Ctrl-C is noticed while no token comes.
constexpr std::chrono::milliseconds kSignalCheck(50);

// [(id, logprob, [(id, logprob), ...]), ...]
py::list ToList(const std::vector<api::ScoredToken>& scores) {
  py::list list;
  for (const api::ScoredToken& scored : scores) {
    py::list top;
    for (const api::TokenScore& score : scored.top) {
      top.append(py::make_tuple(score.id, score.logprob));
    }
    list.append(py::make_tuple(scored.token.id, scored.token.logprob, top));
  }
  return list;
}

}  // namespace

void CheckProcess(pid_t owner) {
  if (owner == getpid()) return;
  throw api::Error(api::ErrorCode::kInvalidArgument,
                   "the model was loaded before this process was forked: load it here");
}

void Mailbox::PutText(std::string_view text, std::vector<api::ScoredToken> scores) {
  {
    const std::lock_guard lock(mutex_);
    if (!text.empty()) texts_.emplace_back(text);
    std::move(scores.begin(), scores.end(), std::back_inserter(scores_));
  }
  changed_.notify_all();
}

void Mailbox::PutEnd(api::Outcome outcome, std::vector<float> embedding) {
  {
    const std::lock_guard lock(mutex_);
    embedding_ = std::move(embedding);
    outcome_ = std::move(outcome);
  }
  changed_.notify_all();
}

template <typename Ready>
void Mailbox::WaitUntil(const Ready& ready, const std::function<void()>& on_interrupt) {
  for (;;) {
    const bool is_ready = WithoutGil([&] {
      std::unique_lock lock(mutex_);
      return changed_.wait_for(lock, kSignalCheck, ready);
    });
    if (PyErr_CheckSignals() != 0) {
      on_interrupt();
      throw py::error_already_set();
    }
    if (is_ready) return;
  }
}

std::optional<std::string> Mailbox::TakeText(const std::function<void()>& on_interrupt) {
  for (;;) {
    WaitUntil([this] { return !texts_.empty() || outcome_; }, on_interrupt);
    const std::lock_guard lock(mutex_);
    if (!texts_.empty()) {
      std::string text = std::move(texts_.front());
      texts_.pop_front();
      return text;
    }
    if (outcome_) return std::nullopt;
    // Another thread took the text.
  }
}

const api::Outcome& Mailbox::WaitForEnd(const std::function<void()>& on_interrupt) {
  WaitUntil([this] { return outcome_.has_value(); }, on_interrupt);
  return *outcome_;
}

Stream::Stream(std::shared_ptr<Mailbox> mailbox, api::Ticket ticket)
    : mailbox_(std::move(mailbox)), ticket_(std::move(ticket)) {}

void Stream::Cancel() { ticket_.Cancel(); }

py::object Stream::Next() {
  CheckProcess(owner_);
  const std::optional<std::string> text = mailbox_->TakeText([this] { Cancel(); });
  if (text) return ToStr(*text);
  if (mailbox_->outcome().error) throw *mailbox_->outcome().error;
  return py::none();
}

py::dict Stream::Finish() {
  CheckProcess(owner_);
  const api::Outcome& outcome = mailbox_->WaitForEnd([this] { Cancel(); });
  if (outcome.error) throw *outcome.error;
  py::dict result;
  result["finish_reason"] = api::FinishReasonName(outcome.finish_reason);
  result["prompt_tokens"] = outcome.prompt_tokens;
  result["reused_tokens"] = outcome.reused_tokens;
  result["generated"] = outcome.generated;
  result["wait_ms"] = outcome.wait_ms;
  result["prefill_ms"] = outcome.prefill_ms;
  result["decode_ms"] = outcome.decode_ms;
  result["scores"] = ToList(mailbox_->scores());
  return result;
}

void BindStream(py::module_& module) {
  py::class_<Stream>(module, "Stream")
      .def("next", &Stream::Next)
      .def("finish", &Stream::Finish)
      .def("cancel", &Stream::Cancel);
}

}  // namespace hearth::python
