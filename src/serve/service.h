// What the server does with a request, behind HTTP: who may ask, for what, and with which result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/doors/response_store.h"
#include "serve/generation_exchange.h"
#include "serve/http/cors.h"
#include "serve/http/http_message.h"
#include "serve/metrics.h"
#include "serve/preparation.h"
#include "serve/reply.h"
#include "serve/requests.h"

namespace hearth::serve {

struct ServiceOptions {
  std::vector<std::string> keys;  // any of them opens it; none: nobody is asked
  std::string model_name;         // empty: the model's own
  // Bodies longer than this are read beside the server's thread: nobody waits for them.
  size_t long_body_bytes = size_t{32} << 10;
  bool strict_model = false;  // requests of other models are refused, not answered by this one
  bool lenient = false;       // as ParseOptions
  // Only requests that name this machine as their host: a page elsewhere cannot reach the server
  // under a name that it lets point here.
  bool local_hosts_only = false;
  std::vector<std::string> cors;  // origins whose pages may use the server, as AllowedOrigins
  // Of bodies, collected answers and those on their way, all together.
  size_t held_bytes = size_t{24} << 20;
};

// On one thread but for `work`, which runs functions on another. The model must outlive it, and it
// what `work` runs.
class Service {
 public:
  Service(api::Model& model, ServiceOptions options, PostFn post, PostFn work);

  // Throws RequestError for what is refused before its body is read: 401, 403, 404, 405, and 503
  // while stopping.
  void CheckHead(const RequestHead& head) const;

  // Answers to a request whose head was let pass: at once, or later; then the exchange is returned.
  std::shared_ptr<Exchange> Handle(const RequestHead& head, std::string body,
                                   std::shared_ptr<Reply> reply);

  // New requests are refused from now on.
  void Stop() { is_stopping_ = true; }
  bool is_stopping() const { return is_stopping_; }
  // Whether the model works for nobody.
  bool is_idle() const { return context_.active == 0; }

  // Fields for the head of every answer to a request from that origin.
  HeaderFields CorsFields(const std::string& origin) const { return origins_.FieldsFor(origin); }

  Metrics& metrics() { return metrics_; }
  const std::shared_ptr<Allowance>& allowance() const { return context_.allowance; }
  // The path that a response is counted under.
  static std::string EndpointOf(const std::string& target);

 private:
  // Reads a request, on any thread.
  using Handler = AnswerFn (Service::*)(std::string_view body);
  // Answers at once with a document. Throws RequestError and api::Error.
  using DocumentFn = std::string (*)(api::Model& model, std::string_view body);
  struct Route {
    const char* method;
    const char* path;
    bool needs_key;
    Handler handler;  // null: `document` answers
    DocumentFn document = nullptr;
  };
  static const std::vector<Route>& Routes();
  static std::string RoutePath(const std::string& target);
  bool IsAllowedPreflight(const RequestHead& head) const;

  void CheckOrigin(const RequestHead& head) const;
  void CheckKey(const RequestHead& head) const;
  void CheckModel(const std::string& name) const;
  [[noreturn]] void RefuseModel(const std::string& name) const;
  ParseOptions parsing() const { return {.lenient = options_.lenient}; }
  void CheckCount(size_t requests) const;
  void CheckDimensions(const std::optional<int64_t>& dimensions) const;
  void CheckScores(const std::vector<std::vector<api::TokenId>>& prompts,
                   const GenerationSettings& settings) const;
  void CheckRoom(const std::vector<std::vector<api::TokenId>>& prompts,
                 const GenerationSettings& settings, std::string_view field) const;
  // What the tokens of a text are for; with special: those that are written out in it are read.
  enum class TextUse { kPrompt, kWithSpecial, kEmbedding };
  std::vector<std::vector<api::TokenId>> Tokens(const std::vector<TextOrTokens>& texts,
                                                const char* field, TextUse use) const;
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
  AnswerFn Models(std::string_view body);
  AnswerFn OneModel(std::string_view body);
  AnswerFn Health(std::string_view body);
  AnswerFn Prometheus(std::string_view body);
  AnswerFn HearthStats(std::string_view body);
  AnswerFn Neurons(std::string_view body);

  api::Model& model_;
  const ServiceOptions options_;
  const AllowedOrigins origins_;
  const std::string name_;
  const std::string model_path_;  // of its own document
  const int64_t created_;
  Metrics metrics_;
  ExchangeContext context_;
  ResponseStore responses_;
  std::atomic<bool> is_stopping_{false};
  uint64_t next_id_ = 0;
  const uint64_t id_base_;
};

// Whether they are equal, in a time that depends on neither's content.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace hearth::serve
