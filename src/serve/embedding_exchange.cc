#include "serve/embedding_exchange.h"

#include <utility>

namespace hearth::serve {

EmbeddingExchange::EmbeddingExchange(ExchangeContext& context, std::string model, bool as_base64,
                                     std::shared_ptr<Reply> reply)
    : context_(context),
      model_(std::move(model)),
      as_base64_(as_base64),
      reply_(std::move(reply)) {}

void EmbeddingExchange::Start(std::vector<std::vector<api::TokenId>> texts) {
  std::vector<api::Model::EmbeddingFn> on_done;
  for (size_t i = 0; i < texts.size(); ++i) {
    on_done.emplace_back([self = shared_from_this(), post = context_.post, i](
                             const std::vector<float>& vector, const api::Outcome& outcome) {
      post([self, i, vector, outcome] { self->OnDone(i, vector, outcome); });
    });
  }
  embeddings_.resize(texts.size());
  tickets_ = context_.model.StartEmbeddings(std::move(texts), on_done);
  context_.active += std::ssize(tickets_);
}

void EmbeddingExchange::Abandon() {
  reply_.reset();
  for (const api::Ticket& ticket : tickets_) ticket.Cancel();
}

void EmbeddingExchange::OnDone(size_t index, std::vector<float> vector,
                               const api::Outcome& outcome) {
  --context_.active;
  ++ended_;
  tokens_ += outcome.prompt_tokens;
  embeddings_[index].vector = std::move(vector);
  if (!reply_) return;
  if (outcome.error || outcome.finish_reason == api::FinishReason::kCancelled) {
    const RequestError error =
        outcome.error
            ? FromModel(*outcome.error)
            : RequestError(Status::kUnavailable, "the server is stopping", "", "stopping");
    reply_->Send(ErrorResponse(error));
    return Abandon();
  }
  if (ended_ < embeddings_.size()) return;
  reply_->Send({.body = EmbeddingsDocument(model_, embeddings_, as_base64_, tokens_)});
  reply_.reset();
}

}  // namespace hearth::serve
