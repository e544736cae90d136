#include "serve/preparation.h"

#include <new>
#include <utility>

#include "serve/request_error.h"

namespace hearth::serve {

AnswerFn Sends(Response response) {
  auto ready = std::make_shared<Response>(std::move(response));
  return [ready](const std::shared_ptr<Reply>& reply) {
    reply->Send(std::move(*ready));  // once, however often the function is copied
    return nullptr;
  };
}

std::shared_ptr<Exchange> AnswerOrError(const std::function<AnswerFn()>& prepare,
                                        const std::shared_ptr<Reply>& reply) {
  try {
    return prepare()(reply);
  } catch (const RequestError& error) {
    reply->Send(ErrorResponse(error));
  } catch (const api::Error& error) {
    reply->Send(ErrorResponse(FromModel(error)));
  } catch (const std::bad_alloc&) {
    reply->Send(ErrorResponse({Status::kUnavailable, "the system has no more memory to give"}));
  }
  return nullptr;
}

AnswerFn PreparesBeside(WorkContext& context, std::function<AnswerFn()> prepare) {
  return [&context, prepare = std::move(prepare)](std::shared_ptr<Reply> reply) {
    auto preparation = std::make_shared<Preparation>(context, std::move(reply));
    preparation->Start(prepare);
    return preparation;
  };
}

void Preparation::Start(std::function<AnswerFn()> prepare) {
  context_.Begin();
  // What answers may die on the server's thread only: this reference goes back with the result.
  context_.work(
      [self = shared_from_this(), &context = context_, prepare = std::move(prepare)]() mutable {
        AnswerFn answer;
        std::exception_ptr error;
        try {
          if (!self->is_abandoned_) answer = prepare();
        } catch (...) {
          error = std::current_exception();
        }
        prepare = nullptr;  // and what it holds, on this thread
        context.post([self = std::move(self), answer = std::move(answer), error] {
          self->GoOn(answer, error);
        });
      });
}

void Preparation::Abandon() {
  is_abandoned_ = true;
  reply_.reset();
  if (next_) std::exchange(next_, nullptr)->Abandon();
}

void Preparation::GoOn(const AnswerFn& answer, const std::exception_ptr& error) {
  context_.End();
  const std::shared_ptr<Reply> reply = std::exchange(reply_, nullptr);
  if (!reply) return;
  next_ = AnswerOrError(
      [&] {
        if (error) std::rethrow_exception(error);
        return answer;
      },
      reply);
}

}  // namespace hearth::serve
