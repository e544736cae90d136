// Requests whose bodies take long to read: they are read beside the server's thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>

#include "serve/exchange_context.h"
#include "serve/reply.h"

namespace hearth::serve {

// What is left to do for a request that has been read: on the server's thread. Returns what is
// under way then, or null where it has answered. Throws RequestError and api::Error.
using AnswerFn = std::function<std::shared_ptr<Exchange>(std::shared_ptr<Reply> reply)>;

// The answer that is ready.
AnswerFn Sends(Response response);

// Runs it, and answers with its error where it throws one.
std::shared_ptr<Exchange> AnswerOrError(const std::function<AnswerFn()>& prepare,
                                        const std::shared_ptr<Reply>& reply);

// Goes on with the reading beside the server's thread, then answers.
AnswerFn PreparesBeside(WorkContext& context, std::function<AnswerFn()> prepare);

// A request that is read elsewhere. Lives on the server's thread.
class Preparation : public Exchange, public std::enable_shared_from_this<Preparation> {
 public:
  Preparation(WorkContext& context, std::shared_ptr<Reply> reply)
      : context_(context), reply_(std::move(reply)) {}

  // prepare: reads the request, on any thread.
  void Start(std::function<AnswerFn()> prepare);
  void Abandon() override;
  ExchangeReport Report() const override { return next_ ? next_->Report() : ExchangeReport(); }

 private:
  void GoOn(const AnswerFn& answer, const std::exception_ptr& error);

  WorkContext& context_;
  std::shared_ptr<Reply> reply_;           // null once nobody waits for it
  std::atomic<bool> is_abandoned_{false};  // then what has not begun is left
  std::shared_ptr<Exchange> next_;         // what answers
};

}  // namespace hearth::serve
