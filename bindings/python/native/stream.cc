#include "stream.h"

#include <pybind11/stl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
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

AnswerReader::AnswerReader(const AnswerForm& form) : reader_(form.thinking, form.tools) {}

std::string AnswerReader::Push(std::string_view piece) { return AddParts(reader_.Push(piece)); }

std::string AnswerReader::Finish() { return AddParts(reader_.Finish()); }

std::string AnswerReader::AddParts(const std::vector<api::AnswerPart>& parts) {
  std::string text;
  for (const api::AnswerPart& part : parts) {
    if (part.kind != api::AnswerPart::Kind::kCall) {
      (part.kind == api::AnswerPart::Kind::kText ? text : thoughts_) += part.text;
      continue;
    }
    calls_.resize(std::max(calls_.size(), static_cast<size_t>(part.call) + 1));
    api::ToolCall& call = calls_[static_cast<size_t>(part.call)];
    call.name += part.name;
    call.arguments += part.text;
  }
  return text;
}

Mailbox::~Mailbox() {
  if (event_ >= 0) close(event_);
}

// With mutex_.
void Mailbox::Signal() {
  changed_.notify_all();
  if (event_ >= 0) eventfd_write(event_, 1);  // fails only where it is signaled already
}

void Mailbox::PutProgress(int64_t done_tokens, int64_t total_tokens) {
  const std::lock_guard lock(mutex_);
  progress_ = {done_tokens, total_tokens};
  Signal();
}

void Mailbox::PutText(std::string_view text, std::vector<api::ScoredToken> scores) {
  const std::lock_guard lock(mutex_);
  std::move(scores.begin(), scores.end(), std::back_inserter(scores_));
  if (text.empty()) return;
  texts_.emplace_back(text);
  Signal();
}

void Mailbox::PutEnd(api::Outcome outcome, std::vector<float> embedding) {
  const std::lock_guard lock(mutex_);
  embedding_ = std::move(embedding);
  outcome_ = std::move(outcome);
  Signal();
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

bool Mailbox::IsReady() {
  const std::lock_guard lock(mutex_);
  if (HasItem()) return true;
  eventfd_t ignored = 0;
  if (event_ >= 0) eventfd_read(event_, &ignored);
  return false;
}

int Mailbox::Descriptor() {
  const std::lock_guard lock(mutex_);
  if (event_ < 0) {
    event_ = eventfd(HasItem() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) throw api::Error(api::ErrorCode::kIo, std::strerror(errno));
  }
  return event_;
}

std::optional<Mailbox::Item> Mailbox::TakeItem(const std::function<void()>& on_interrupt) {
  for (;;) {
    WaitUntil([this] { return HasItem(); }, on_interrupt);
    const std::lock_guard lock(mutex_);
    if (progress_) return Item{std::exchange(progress_, std::nullopt), {}};
    if (!texts_.empty()) {
      Item item = {{}, std::move(texts_.front())};
      texts_.pop_front();
      return item;
    }
    if (outcome_) return std::nullopt;
    // Another thread took it.
  }
}

const api::Outcome& Mailbox::WaitForEnd(const std::function<void()>& on_interrupt) {
  WaitUntil([this] { return outcome_.has_value(); }, on_interrupt);
  return *outcome_;
}

Stream::Stream(std::shared_ptr<Mailbox> mailbox, api::Ticket ticket, const AnswerForm& form)
    : mailbox_(std::move(mailbox)), ticket_(std::move(ticket)), reader_(form) {}

void Stream::Cancel() { ticket_.Cancel(); }

py::object Stream::Next(bool wait) {
  CheckProcess(owner_);
  for (;;) {
    if (!wait && !mailbox_->IsReady()) return py::str("");
    const auto item = mailbox_->TakeItem([this] { Cancel(); });
    if (item && item->progress) return py::cast(*item->progress);
    if (!item && mailbox_->outcome().error) throw *mailbox_->outcome().error;
    if (!item && std::exchange(is_read_, true)) return py::none();
    const std::string text = item ? reader_.Push(item->text) : reader_.Finish();
    if (!text.empty()) return ToStr(text);
  }
}

py::str Stream::Thoughts() const { return ToStr(reader_.thoughts()); }

py::dict Stream::Finish() {
  CheckProcess(owner_);
  const api::Outcome& outcome = mailbox_->WaitForEnd([this] { Cancel(); });
  if (outcome.error) throw *outcome.error;
  py::dict result;
  const bool calls = outcome.finish_reason == api::FinishReason::kStop && reader_.ends_in_calls();
  result["finish_reason"] = calls ? "tool_calls" : api::FinishReasonName(outcome.finish_reason);
  py::list made;
  for (const api::ToolCall& call : reader_.calls()) {
    made.append(py::make_tuple(ToStr(call.name), ToStr(call.arguments)));
  }
  result["tool_calls"] = made;
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
  py::class_<AnswerForm>(module, "AnswerForm").def(py::init<>());
  py::class_<Stream>(module, "Stream")
      .def("next", &Stream::Next, py::arg("wait"))
      .def("fileno", &Stream::Descriptor)
      .def_property_readonly("reasoning", &Stream::Thoughts)
      .def("finish", &Stream::Finish)
      .def("cancel", &Stream::Cancel);
}

}  // namespace hearth::python
