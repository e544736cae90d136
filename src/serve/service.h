// What the server does with a request, whatever brought it: HTTP is not known here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hearth/hearth.hpp"
#include "serve/doors/response_store.h"
#include "serve/gate.h"
#include "serve/http/http_message.h"
#include "serve/metrics.h"
#include "serve/models/model_host.h"
#include "serve/preparation.h"
#include "serve/reply.h"
#include "serve/requests.h"

namespace hearth::serve {

struct ServiceOptions {
  GateOptions gate;
  std::string model_name;  // of one model; empty: its own
  // Bodies longer than this are read beside the server's thread: nobody waits for them.
  size_t long_body_bytes = size_t{32} << 10;
  bool strict_model = false;  // requests of other models are refused, not answered by the one
  bool lenient = false;       // as ParseOptions
  // Of bodies, collected answers and those on their way, all together.
  size_t held_bytes = size_t{24} << 20;
};

// On one thread but for `work`, which runs functions on another. It must outlive what `work` runs.
class Service {
 public:
  // Makes the host of the models out of what they share.
  using NewHostFn = std::function<std::unique_ptr<ModelHost>(const ServiceContext& shared)>;

  Service(const NewHostFn& new_host, ServiceOptions options, PostFn post, PostFn work);
  // With one model, which must outlive it.
  Service(api::Model& model, const ServiceOptions& options, PostFn post, PostFn work);

  // Who may ask for what. Handle answers what its CheckHead lets pass.
  Gate& gate() { return gate_; }
  const Gate& gate() const { return gate_; }

  // Answers at once, or later; then the exchange is returned.
  std::shared_ptr<Exchange> Handle(const RequestHead& head, std::string body,
                                   std::shared_ptr<Reply> reply);

  // Whether nobody is worked for.
  bool is_idle() const { return work_.active == 0 && host_->is_idle(); }
  ModelHost& host() { return *host_; }

  Metrics& metrics() { return metrics_; }
  const std::shared_ptr<Allowance>& allowance() const { return allowance_; }

 private:
  // What a head asks for.
  struct Question {
    Endpoint endpoint = Endpoint::kHealth;
    std::string model;  // in its path or query; empty: none
  };

  // Reads a request: one with a body on any thread.
  AnswerFn Read(const Question& question, std::string_view body);
  ParseOptions parsing() const { return {.lenient = options_.lenient}; }

  AnswerFn ChatOf(ChatRequest request, AnswerKind kind, NewWriterFn writer);
  AnswerFn Respond(std::string_view body);
  AnswerFn Message(std::string_view body);
  AnswerFn CountTokens(std::string_view body);
  AnswerFn Complete(std::string_view body);
  AnswerFn Embed(std::string_view body);
  AnswerFn Tokenize(std::string_view body);
  AnswerFn Detokenize(std::string_view body);
  AnswerFn Health() const;

  const ServiceOptions options_;
  Gate gate_;
  Metrics metrics_;
  const std::shared_ptr<Allowance> allowance_;
  WorkContext work_;
  ResponseStore responses_;
  std::unique_ptr<ModelHost> host_;
};

}  // namespace hearth::serve
