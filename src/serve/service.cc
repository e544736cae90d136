#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/error.h"
#include "serve/answers.h"
#include "serve/embedding_exchange.h"
#include "serve/page.h"
#include "serve/requests.h"

namespace hearth::serve {
namespace {

// A full queue has usually moved on by then.
constexpr char kRetrySeconds[] = "1";

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t RandomBase() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

std::string PathOf(const std::string& target) { return target.substr(0, target.find('?')); }

// "example.com:8080" and "[::1]:8080" without the port.
std::string HostName(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

bool IsLocalHost(const std::string& host) {
  const std::string name = HostName(host);
  return name.empty() || name == "localhost" || name == "[::1]" || name.rfind("127.", 0) == 0;
}

Response Document(std::string body) { return {.body = std::move(body)}; }

}  // namespace

Response ErrorResponse(const RequestError& error) {
  Response response = {.status = error.status(), .body = error.ToJson()};
  if (error.status() == Status::kUnauthorized) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  if (!error.allowed().empty()) response.headers.emplace_back("Allow", error.allowed());
  if (error.status() == Status::kTooManyRequests || error.status() == Status::kUnavailable) {
    response.headers.emplace_back("Retry-After", kRetrySeconds);
  }
  return response;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  volatile uint8_t difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<uint8_t>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

Service::Service(api::Model& model, ServiceOptions options, PostFn post)
    : model_(model),
      options_(std::move(options)),
      name_(options_.model_name.empty() ? model.info().name : options_.model_name),
      model_path_("/v1/models/" + name_),
      created_(SecondsSince1970()),
      context_{model, metrics_, std::move(post)},
      id_base_(RandomBase()) {}

const std::vector<Service::Route>& Service::Routes() {
  static const std::vector<Route> routes = {
      {"POST", "/v1/chat/completions", true, &Service::Chat},
      {"POST", "/v1/completions", true, &Service::Complete},
      {"POST", "/v1/embeddings", true, &Service::Embed},
      {"GET", "/v1/models", true, &Service::Models},
      {"GET", "/v1/hearth/stats", true, &Service::HearthStats},
      {"GET", "/v1/hearth/neurons", true, &Service::Neurons},
      {"POST", "/tokenize", true, &Service::Tokenize},
      {"POST", "/detokenize", true, &Service::Detokenize},
      {"GET", "/", false, &Service::Page},
      {"GET", "/health", false, &Service::Health},
      {"GET", "/metrics", true, &Service::Prometheus},
  };
  return routes;
}

std::string Service::EndpointOf(const std::string& target) {
  const std::string path = PathOf(target);
  for (const Route& route : Routes()) {
    if (path == route.path) return path;
  }
  return "other";
}

void Service::CheckOrigin(const RequestHead& head) const {
  if (options_.local_hosts_only && !IsLocalHost(head.host)) {
    throw RequestError(Status::kForbidden,
                       "the host of the request is not this machine: a server that listens "
                       "elsewhere needs a key (--api-key-file)");
  }
  // What a page may read of an answer the browser decides, but work is done before it does.
  if (head.origin.empty() || head.method != "POST") return;
  const size_t scheme = head.origin.find("://");
  if (scheme != std::string::npos && head.origin.substr(scheme + 3) == head.host) return;
  throw RequestError(Status::kForbidden, "pages of other origins may not use this server");
}

void Service::CheckKey(const std::string& authorization) const {
  if (options_.keys.empty()) return;
  constexpr std::string_view kScheme = "Bearer ";
  const bool has_key = authorization.rfind(kScheme, 0) == 0;
  const std::string_view given =
      has_key ? std::string_view(authorization).substr(kScheme.size()) : std::string_view();
  bool is_known = false;
  for (const std::string& key : options_.keys) {
    is_known = EqualInConstantTime(key, given) || is_known;
  }
  if (is_known) return;
  throw RequestError(
      Status::kUnauthorized,
      has_key ? "the key is wrong" : "a key is needed: send it as 'Authorization: Bearer KEY'", "",
      "invalid_api_key");
}

void Service::CheckHead(const RequestHead& head) const {
  CheckOrigin(head);
  const std::string path = PathOf(head.target);
  std::string allowed;
  for (const Route& route : Routes()) {
    if (path != route.path && !(path == model_path_ && route.path == std::string("/v1/models"))) {
      continue;
    }
    if (head.method != route.method) {
      allowed = route.method;
      continue;
    }
    if (route.needs_key) CheckKey(head.authorization);
    const bool is_work = head.method == "POST";
    if (is_stopping_ && is_work) {
      throw RequestError(Status::kUnavailable, "the server is stopping", "", "stopping");
    }
    return;
  }
  // Without a key nobody learns what is here.
  CheckKey(head.authorization);
  if (!allowed.empty()) {
    RequestError error(Status::kMethodNotAllowed, fmt::format("{} takes only {}", path, allowed));
    error.set_allowed(allowed);
    throw error;
  }
  throw RequestError(Status::kNotFound, fmt::format("there is nothing at '{}'", Printable(path)),
                     "", "not_found");
}

std::shared_ptr<Exchange> Service::Handle(const RequestHead& head, std::string_view body,
                                          std::shared_ptr<Reply> reply) {
  const std::string path = PathOf(head.target);
  try {
    for (const Route& route : Routes()) {
      if (path != route.path || head.method != route.method) continue;
      return (this->*route.handler)(body, reply);
    }
    return OneModel(body, reply);
  } catch (const RequestError& error) {
    reply->Send(ErrorResponse(error));
  } catch (const api::Error& error) {
    reply->Send(ErrorResponse(FromModel(error)));
  } catch (const std::bad_alloc&) {
    reply->Send(ErrorResponse({Status::kUnavailable, "the system has no more memory to give"}));
  }
  return nullptr;
}

void Service::CheckModel(const std::string& name) const {
  if (name.empty() || name == name_) return;
  throw RequestError(
      Status::kNotFound,
      fmt::format("there is no model '{}': this server has '{}'", Printable(name), name_), "model",
      "model_not_found");
}

void Service::CheckCount(size_t requests) const {
  const int64_t most = model_.info().parallel + model_.info().queue;
  if (static_cast<int64_t>(requests) <= most) return;
  throw RequestError(Status::kBadRequest,
                     fmt::format("the server takes at most {} answers at once", most), "n",
                     "invalid_value");
}

// An answer as long as asked for must fit behind its prompt.
void Service::CheckRoom(const std::vector<std::vector<api::TokenId>>& prompts,
                        const GenerationSettings& settings) const {
  const int64_t context = model_.info().context;
  for (const std::vector<api::TokenId>& prompt : prompts) {
    const auto length = std::ssize(prompt);
    if (length < context && settings.max_tokens.value_or(1) <= context - length) continue;
    throw RequestError(
        Status::kBadRequest,
        fmt::format("the context holds {} tokens: {} of the prompt and {} to generate are more",
                    context, length, settings.max_tokens.value_or(1)),
        "", "context_length_exceeded");
  }
}

std::vector<std::vector<api::TokenId>> Service::Tokens(
    const std::vector<TextOrTokens>& texts) const {
  std::vector<std::vector<api::TokenId>> all;
  for (const TextOrTokens& text : texts) {
    if (const auto* words = std::get_if<std::string>(&text)) {
      all.push_back(model_.Tokenize(*words, true));
    } else {
      all.push_back(std::get<std::vector<api::TokenId>>(text));
    }
  }
  return all;
}

AnswerHead Service::NewHead(AnswerKind kind) {
  return {kind,
          fmt::format("{}-{:016x}{:08x}", kind == AnswerKind::kChat ? "chatcmpl" : "cmpl", id_base_,
                      next_id_++),
          SecondsSince1970(), name_};
}

std::shared_ptr<Exchange> Service::Chat(std::string_view body, std::shared_ptr<Reply> reply) {
  ChatRequest request = ParseChatRequest(body);
  CheckModel(request.settings.model);
  CheckCount(static_cast<size_t>(request.settings.n));
  api::ChatPrompt prompt = model_.EncodeChat(request.messages);
  CheckRoom({prompt.tokens}, request.settings);
  std::vector<std::string>& stop = request.settings.stop;
  stop.insert(stop.end(), prompt.stop.begin(), prompt.stop.end());
  auto exchange = std::make_shared<GenerationExchange>(
      context_, NewHead(AnswerKind::kChat), std::move(request.settings), std::move(reply));
  exchange->Start({std::move(prompt.tokens)});
  return exchange;
}

std::shared_ptr<Exchange> Service::Complete(std::string_view body, std::shared_ptr<Reply> reply) {
  CompletionRequest request = ParseCompletionRequest(body);
  CheckModel(request.settings.model);
  CheckCount(request.prompts.size() * static_cast<size_t>(request.settings.n));
  auto prompts = Tokens(request.prompts);
  CheckRoom(prompts, request.settings);
  auto exchange = std::make_shared<GenerationExchange>(
      context_, NewHead(AnswerKind::kCompletion), std::move(request.settings), std::move(reply));
  exchange->Start(std::move(prompts));
  return exchange;
}

std::shared_ptr<Exchange> Service::Embed(std::string_view body, std::shared_ptr<Reply> reply) {
  const EmbeddingsRequest request = ParseEmbeddingsRequest(body);
  CheckModel(request.model);
  CheckCount(request.inputs.size());
  auto exchange =
      std::make_shared<EmbeddingExchange>(context_, name_, request.as_base64, std::move(reply));
  exchange->Start(Tokens(request.inputs));
  return exchange;
}

std::shared_ptr<Exchange> Service::Tokenize(std::string_view body, std::shared_ptr<Reply> reply) {
  const TokenizeRequest request = ParseTokenizeRequest(body);
  const auto tokens = model_.Tokenize(request.content, request.add_special);
  std::optional<std::vector<std::string>> pieces;
  if (request.with_pieces) {
    pieces.emplace();
    for (const api::TokenId token : tokens) pieces->push_back(model_.TokenBytes(token));
  }
  reply->Send(Document(TokensDocument(tokens, pieces)));
  return nullptr;
}

std::shared_ptr<Exchange> Service::Detokenize(std::string_view body, std::shared_ptr<Reply> reply) {
  const DetokenizeRequest request = ParseDetokenizeRequest(body);
  reply->Send(Document(ContentDocument(model_.Detokenize(request.tokens))));
  return nullptr;
}

std::shared_ptr<Exchange> Service::Models(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send(Document(ModelsDocument(name_, created_)));
  return nullptr;
}

std::shared_ptr<Exchange> Service::OneModel(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send(Document(ModelDocument(name_, created_)));
  return nullptr;
}

std::shared_ptr<Exchange> Service::Page(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send({.content_type = "text/html; charset=utf-8",
               .body = std::string(PageHtml()),
               .headers = {{"Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
                            "form-action 'none'; frame-ancestors 'none'"},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"}}});
  return nullptr;
}

std::shared_ptr<Exchange> Service::Health(std::string_view, std::shared_ptr<Reply> reply) {
  const std::string fault = model_.stats().fault;
  Response response = Document(HealthDocument("ok", ""));
  if (is_stopping_) {
    response = {.status = Status::kUnavailable,
                .body = HealthDocument("stopping", "the server is stopping")};
  } else if (!fault.empty()) {
    response = {.status = Status::kUnavailable, .body = HealthDocument("fault", fault)};
  }
  reply->Send(std::move(response));
  return nullptr;
}

std::shared_ptr<Exchange> Service::Prometheus(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
               .body = metrics_.Text(model_.info(), model_.stats())});
  return nullptr;
}

std::shared_ptr<Exchange> Service::HearthStats(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send(Document(StatsDocument(name_, model_.info(), model_.stats())));
  return nullptr;
}

std::shared_ptr<Exchange> Service::Neurons(std::string_view, std::shared_ptr<Reply> reply) {
  reply->Send(Document(NeuronsDocument(model_.WatchNeurons(), model_.info().is_streamed)));
  return nullptr;
}

}  // namespace hearth::serve
