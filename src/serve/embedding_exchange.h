// Embeddings on their way: collects the vectors of all texts of a request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/generation_exchange.h"
#include "serve/request_error.h"

namespace hearth::serve {

// Most numbers that the vectors of one request may have together. Written as text they are some 12
// MB, which are in memory twice for a moment.
inline constexpr int64_t kMostEmbeddingNumbers = int64_t{1} << 20;

// As GenerationExchange. Texts run in turn, as many at once as the model computes together, so that
// one request does not need the whole queue.
class EmbeddingExchange : public Exchange, public std::enable_shared_from_this<EmbeddingExchange> {
 public:
  EmbeddingExchange(ExchangeContext& context, std::string model, bool as_base64,
                    std::shared_ptr<Reply> reply);

  // Throws RequestError where they cannot start.
  void Start(std::vector<std::vector<api::TokenId>> texts);
  void Abandon() override;
  ExchangeReport Report() const override;

 private:
  void CheckSize(size_t texts) const;
  // As many as may run now. Throws api::Error.
  void StartMore();
  void StartNext();
  void OnDone(size_t index, std::vector<float> vector, const api::Outcome& outcome);
  void Fail(const RequestError& error);

  ExchangeContext& context_;
  const std::string model_;
  const bool as_base64_;
  std::shared_ptr<Reply> reply_;
  std::vector<std::vector<api::TokenId>> texts_;  // empty once they have started
  std::vector<api::Ticket> tickets_;              // of those that have started, the first ones
  std::vector<Embedding> embeddings_;
  int64_t running_ = 0;
  int64_t tokens_ = 0;
  int failure_ = 0;  // the status of the error it ended with
  size_t ended_ = 0;
};

}  // namespace hearth::serve
