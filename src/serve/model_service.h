// What one model does with requests that have been read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/exchange_context.h"
#include "serve/generation_exchange.h"
#include "serve/model_checks.h"
#include "serve/preparation.h"
#include "serve/requests.h"

namespace hearth::serve {

// What all models of a server share; outlives them.
struct ServiceContext {
  Metrics& metrics;
  std::shared_ptr<Allowance> allowance;
  PostFn post;
  PostFn work;
  size_t held_bytes = 0;  // as ServiceOptions
};

// A model that answers. Its functions throw RequestError, and may be called on any thread; what
// they return is for the server's thread. The model must outlive it, and it what is under way.
class ModelService {
 public:
  // name: what clients call it. on_rest: posted to the server's thread after the last request under
  // way has ended; may be empty.
  ModelService(api::Model& model, std::string name, const ServiceContext& shared,
               std::function<void()> on_rest = {});

  const std::string& name() const { return name_; }
  api::Model& model() const { return model_; }
  int64_t created() const { return created_; }  // seconds since 1970
  // Whether it works for nobody. On the server's thread.
  bool is_at_rest() const { return context_.active == 0; }

  // A chat of any API.
  AnswerFn Chat(ChatRequest request, AnswerKind kind, NewWriterFn writer);
  AnswerFn CountTokens(ChatRequest request);
  AnswerFn Complete(CompletionRequest request);
  AnswerFn Embed(const EmbeddingsRequest& request);
  AnswerFn Tokenize(const TokenizeRequest& request);
  AnswerFn Detokenize(const DetokenizeRequest& request);

  // The rest of a request's reading takes long: it goes on beside the server's thread.
  AnswerFn Beside(std::function<AnswerFn()> prepare);

 private:
  AnswerHead NewHead(AnswerKind kind);
  AnswerFn StartGeneration(AnswerKind kind, GenerationSettings settings,
                           std::vector<std::vector<api::TokenId>> prompts, AnswerForm form);
  AnswerFn PrepareChat(ChatRequest request, AnswerKind kind, NewWriterFn writer);
  api::ChatPrompt RenderChat(const ChatRequest& request) const;

  api::Model& model_;
  const std::string name_;
  const ModelChecks checks_;
  const int64_t created_;
  ExchangeContext context_;
  uint64_t next_id_ = 0;  // of the server's thread
  const uint64_t id_base_;
};

}  // namespace hearth::serve
