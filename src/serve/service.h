// What the server does with a request, whatever brought it: HTTP is not known here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/doors/response_store.h"
#include "serve/gate.h"
#include "serve/generation_exchange.h"
#include "serve/http/http_message.h"
#include "serve/metrics.h"
#include "serve/model_checks.h"
#include "serve/preparation.h"
#include "serve/reply.h"
#include "serve/requests.h"

namespace hearth::serve {

struct ServiceOptions {
  GateOptions gate;
  std::string model_name;  // empty: the model's own
  // Bodies longer than this are read beside the server's thread: nobody waits for them.
  size_t long_body_bytes = size_t{32} << 10;
  bool strict_model = false;  // requests of other models are refused, not answered by this one
  bool lenient = false;       // as ParseOptions
  // Of bodies, collected answers and those on their way, all together.
  size_t held_bytes = size_t{24} << 20;
};

// On one thread but for `work`, which runs functions on another. The model must outlive it, and it
// what `work` runs.
class Service {
 public:
  Service(api::Model& model, ServiceOptions options, PostFn post, PostFn work);

  // Who may ask for what. Handle answers what its CheckHead lets pass.
  Gate& gate() { return gate_; }
  const Gate& gate() const { return gate_; }

  // Answers at once, or later; then the exchange is returned.
  std::shared_ptr<Exchange> Handle(const RequestHead& head, std::string body,
                                   std::shared_ptr<Reply> reply);

  // Whether the model works for nobody.
  bool is_idle() const { return context_.active == 0; }

  Metrics& metrics() { return metrics_; }
  const std::shared_ptr<Allowance>& allowance() const { return context_.allowance; }

 private:
  // Reads a request, on any thread.
  AnswerFn Read(Endpoint endpoint, std::string_view body);
  ParseOptions parsing() const { return {.lenient = options_.lenient}; }
  AnswerHead NewHead(AnswerKind kind);

  // Checks a chat of any API and prepares it beside the server's thread.
  AnswerFn ChatOf(ChatRequest request, AnswerKind kind, NewWriterFn writer);
  AnswerFn StartGeneration(AnswerKind kind, GenerationSettings settings,
                           std::vector<std::vector<api::TokenId>> prompts, AnswerForm form);
  // The rest of a request's reading takes long: it goes on beside the server's thread.
  AnswerFn Beside(std::function<AnswerFn()> prepare);
  AnswerFn Chat(std::string_view body);
  AnswerFn PrepareChat(ChatRequest request, AnswerKind kind, NewWriterFn writer);
  api::ChatPrompt RenderChat(const ChatRequest& request) const;
  AnswerFn Respond(std::string_view body);
  AnswerFn Message(std::string_view body);
  AnswerFn CountTokens(std::string_view body);
  AnswerFn Complete(std::string_view body);
  AnswerFn Embed(std::string_view body);
  AnswerFn Tokenize(std::string_view body);
  AnswerFn Detokenize(std::string_view body);
  AnswerFn Health() const;

  api::Model& model_;
  const ServiceOptions options_;
  const std::string name_;
  const ModelChecks checks_;
  Gate gate_;
  const int64_t created_;
  Metrics metrics_;
  ExchangeContext context_;
  ResponseStore responses_;
  uint64_t next_id_ = 0;
  const uint64_t id_base_;
};

}  // namespace hearth::serve
