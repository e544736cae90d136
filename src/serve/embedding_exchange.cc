#include "serve/embedding_exchange.h"

#include <fmt/format.h>

#include <utility>

namespace hearth::serve {

EmbeddingExchange::EmbeddingExchange(ExchangeContext& context, std::string model, bool as_base64,
                                     std::shared_ptr<Reply> reply)
    : context_(context),
      model_(std::move(model)),
      as_base64_(as_base64),
      reply_(std::move(reply)) {}

void EmbeddingExchange::CheckSize(size_t texts) const {
  const int64_t most = kMostEmbeddingNumbers / context_.model.info().embedding_size;
  if (static_cast<int64_t>(texts) <= most) return;
  throw RequestError(
      Status::kBadRequest,
      fmt::format("input: expected at most {} texts of this model, found {}", most, texts), "input",
      "invalid_value");
}

void EmbeddingExchange::Start(std::vector<std::vector<api::TokenId>> texts) {
  CheckSize(texts.size());
  texts_ = std::move(texts);
  embeddings_.resize(texts_.size());
  try {
    StartMore();
  } catch (const api::Error& error) {
    Abandon();
    throw FromModel(error, {.prompt = "input"});
  }
}

void EmbeddingExchange::StartMore() {
  const int64_t most = context_.model.info().parallel;
  while (tickets_.size() < texts_.size() && running_ < most) {
    try {
      StartNext();
    } catch (const api::Error& error) {
      // The queue is full of others: the next one's turn comes when one of these ends.
      if (error.code() == api::ErrorCode::kBusy && running_ > 0) return;
      throw;
    }
  }
}

void EmbeddingExchange::StartNext() {
  const size_t index = tickets_.size();
  const auto on_done = [self = shared_from_this(), post = context_.post, index](
                           const std::vector<float>& vector, const api::Outcome& outcome) {
    post([self, index, vector, outcome] { self->OnDone(index, vector, outcome); });
  };
  tickets_.push_back(context_.model.StartEmbeddings({texts_[index]}, {on_done}).front());
  texts_[index] = {};
  ++running_;
  context_.Begin();
}

void EmbeddingExchange::Abandon() {
  reply_.reset();
  for (const api::Ticket& ticket : tickets_) ticket.Cancel();
}

ExchangeReport EmbeddingExchange::Report() const {
  return {.prompt_tokens = tokens_, .failure = failure_};
}

void EmbeddingExchange::Fail(const RequestError& error) {
  const std::shared_ptr<Reply> reply = reply_;
  failure_ = static_cast<int>(error.status());
  Abandon();
  reply->Send(ErrorResponse(error));
}

void EmbeddingExchange::OnDone(size_t index, std::vector<float> vector,
                               const api::Outcome& outcome) {
  context_.End();
  --running_;
  ++ended_;
  tokens_ += outcome.prompt_tokens;
  embeddings_[index].vector = std::move(vector);
  if (!reply_) return;
  if (outcome.error) return Fail(FromModel(*outcome.error, {.prompt = "input"}));
  if (outcome.finish_reason == api::FinishReason::kCancelled) {
    return Fail({Status::kUnavailable, "the server is stopping", "", "stopping"});
  }
  if (ended_ < embeddings_.size()) {
    try {
      return StartMore();
    } catch (const api::Error& error) {
      return Fail(FromModel(error, {.prompt = "input"}));
    }
  }
  reply_->Send({.body = EmbeddingsDocument(model_, embeddings_, as_base64_, tokens_)});
  reply_.reset();
}

}  // namespace hearth::serve
