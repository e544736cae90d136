// Embeddings on their way: collects the vectors of all texts of a request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/generation_exchange.h"

namespace hearth::serve {

// As GenerationExchange.
class EmbeddingExchange : public Exchange, public std::enable_shared_from_this<EmbeddingExchange> {
 public:
  EmbeddingExchange(ExchangeContext& context, std::string model, bool as_base64,
                    std::shared_ptr<Reply> reply);

  // Throws api::Error where they cannot start.
  void Start(std::vector<std::vector<api::TokenId>> texts);
  void Abandon() override;

 private:
  void OnDone(size_t index, std::vector<float> vector, const api::Outcome& outcome);

  ExchangeContext& context_;
  const std::string model_;
  const bool as_base64_;
  std::shared_ptr<Reply> reply_;
  std::vector<api::Ticket> tickets_;
  std::vector<Embedding> embeddings_;
  int64_t tokens_ = 0;
  size_t ended_ = 0;
};

}  // namespace hearth::serve
