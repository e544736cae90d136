#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/error.h"
#include "serve/answers.h"
#include "serve/doors/adapter_documents.h"
#include "serve/doors/messages_writer.h"
#include "serve/embedding_exchange.h"
#include "serve/json_fields.h"
#include "serve/page.h"

namespace hearth::serve {
namespace {

// Conversations of the Responses API may take 1 / kStoredShare of what is held for clients.
constexpr size_t kStoredShare = 4;
// What is below it has errors of its own form.
constexpr char kMessagesPath[] = "/v1/messages";
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

Service::Service(api::Model& model, ServiceOptions options, PostFn post, PostFn work)
    : model_(model),
      options_(std::move(options)),
      origins_(options_.cors),
      name_(options_.model_name.empty() ? model.info().name : options_.model_name),
      model_path_("/v1/models/" + name_),
      created_(SecondsSince1970()),
      context_{model, metrics_, std::make_shared<Allowance>(options_.held_bytes), std::move(post),
               std::move(work)},
      responses_(context_.allowance, options_.held_bytes / kStoredShare),
      id_base_(RandomBase()) {}

const std::vector<Service::Route>& Service::Routes() {
  static const std::vector<Route> routes = {
      {"POST", "/v1/chat/completions", true, &Service::Chat},
      {"POST", "/v1/responses", true, &Service::Respond},
      {"POST", "/v1/messages", true, &Service::Message},
      {"POST", "/v1/messages/count_tokens", true, &Service::CountTokens},
      {"POST", "/v1/completions", true, &Service::Complete},
      {"POST", "/v1/embeddings", true, &Service::Embed},
      {"GET", "/v1/models", true, &Service::Models},
      {"GET", "/v1/hearth/stats", true, &Service::HearthStats},
      {"GET", "/v1/hearth/neurons", true, &Service::Neurons},
      {"GET", "/lora-adapters", true, nullptr, &AdaptersDocument},
      {"POST", "/lora-adapters", true, nullptr, &SetAdaptersDocument},
      {"POST", "/tokenize", true, &Service::Tokenize},
      {"POST", "/detokenize", true, &Service::Detokenize},
      {"GET", "/health", false, &Service::Health},
      {"GET", "/metrics", true, &Service::Prometheus},
  };
  return routes;
}

std::shared_ptr<Exchange> Service::Handle(const RequestHead& head, std::string body,
                                          std::shared_ptr<Reply> reply) {
  if (IsAllowedPreflight(head)) {
    return AnswerOrError([&] { return Sends(origins_.AnswerPreflight(head)); }, reply);
  }
  const std::string path = RoutePath(head.target);
  if (std::optional<Response> file = PageFileAt(path)) {
    reply->Send(std::move(*file));
    return nullptr;
  }
  Route route = {"GET", "", true, &Service::OneModel};
  for (const Route& each : Routes()) {
    if (path == each.path && head.answered_method() == each.method) route = each;
  }
  if (path.rfind(kMessagesPath, 0) == 0) reply = ReplyOfMessages(std::move(reply));
  const bool is_long = body.size() > options_.long_body_bytes;
  std::function<AnswerFn()> prepare = [this, route, text = std::move(body)] {
    AllowanceShare document(context_.allowance);
    if (!document.Resize(DocumentBytes(text))) throw Overloaded();
    if (route.document == nullptr) return (this->*route.handler)(text);
    try {
      return Sends(Document(route.document(model_, text)));
    } catch (const api::Error& error) {
      throw FromModel(error);
    }
  };
  return AnswerOrError([&] { return is_long ? Beside(std::move(prepare)) : prepare(); }, reply);
}

AnswerFn Service::Beside(std::function<AnswerFn()> prepare) {
  return [this, prepare = std::move(prepare)](std::shared_ptr<Reply> reply) {
    auto preparation = std::make_shared<Preparation>(context_, std::move(reply));
    preparation->Start(prepare);
    return preparation;
  };
}

// There is one model: it answers whatever name a client was set up with, and says its own.
void Service::CheckModel(const std::string& name) const {
  if (options_.strict_model && !name.empty() && name != name_) RefuseModel(name);
}

void Service::RefuseModel(const std::string& name) const {
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

// There must be room for one token of an answer. How many are asked for at most is no demand.
void Service::CheckRoom(const std::vector<std::vector<api::TokenId>>& prompts,
                        const GenerationSettings& settings, std::string_view field) const {
  const int64_t context = model_.info().context;
  for (const std::vector<api::TokenId>& prompt : prompts) {
    const auto length = std::ssize(prompt);
    // Where nothing is to be generated the prompt may fill it.
    if (length < context || (length == context && settings.max_tokens == 0)) continue;
    const int64_t to_generate = settings.max_tokens.value_or(1);
    throw RequestError(
        Status::kBadRequest,
        fmt::format(
            "This model's maximum context length is {} tokens, but {} were asked for: {} of "
            "the {} and {} to generate",
            context, length + to_generate, length, field, to_generate),
        std::string(field), "context_length_exceeded");
  }
}

// The scores of an answer that is not streamed are held until it is sent.
void Service::CheckScores(const std::vector<std::vector<api::TokenId>>& prompts,
                          const GenerationSettings& settings) const {
  if (settings.stream || !settings.top_logprobs) return;
  uint64_t scores = 0;
  for (const std::vector<api::TokenId>& prompt : prompts) {
    const int64_t room = model_.info().context - std::ssize(prompt);
    const int64_t echoed = settings.echo ? std::ssize(prompt) : 0;
    const int64_t tokens =
        settings.n * (echoed + std::min(settings.max_tokens.value_or(room), room));
    scores += static_cast<uint64_t>(tokens) * static_cast<uint64_t>(*settings.top_logprobs + 1);
  }
  const uint64_t most = options_.held_bytes / 2 / kScoreBytes;
  if (scores <= most) return;
  throw RequestError(
      Status::kBadRequest,
      fmt::format("it asks for up to {} scores: an answer that is not streamed may have {}; stream "
                  "it, or ask for fewer tokens, answers or scores",
                  scores, most),
      "logprobs", "invalid_value");
}

std::vector<std::vector<api::TokenId>> Service::Tokens(const std::vector<TextOrTokens>& texts,
                                                       const char* field, TextUse use) const try {
  std::vector<std::vector<api::TokenId>> all;
  for (const TextOrTokens& text : texts) {
    if (const auto* words = std::get_if<std::string>(&text)) {
      all.push_back(use == TextUse::kEmbedding
                        ? model_.TokenizeForEmbedding(*words)
                        : model_.Tokenize(*words, true, use == TextUse::kWithSpecial));
    } else {
      all.push_back(std::get<std::vector<api::TokenId>>(text));
    }
  }
  return all;
} catch (const api::Error& error) {
  throw FromModel(error, {.prompt = field});
}

AnswerHead Service::NewHead(AnswerKind kind) {
  const char* prefix = kind == AnswerKind::kChat         ? "chatcmpl-"
                       : kind == AnswerKind::kCompletion ? "cmpl-"
                       : kind == AnswerKind::kResponse   ? "resp_"
                                                         : "msg_";
  return {kind, fmt::format("{}{:016x}{:08x}", prefix, id_base_, next_id_++), SecondsSince1970(),
          name_};
}

AnswerFn Service::Chat(std::string_view body) {
  return ChatOf(ParseChatRequest(body, parsing()), AnswerKind::kChat, {});
}

AnswerFn Service::ChatOf(ChatRequest request, AnswerKind kind, NewWriterFn writer) {
  CheckModel(request.settings.model);
  CheckCount(static_cast<size_t>(request.settings.n));
  // Templates and grammars of schemas may take long, however short the request is.
  return Beside([this, request = std::move(request), kind, writer = std::move(writer)] {
    return PrepareChat(request, kind, writer);
  });
}

// What the model's template takes meanwhile is part of what the server holds for its clients.
api::ChatPrompt Service::RenderChat(const ChatRequest& request) const {
  AllowanceShare held(context_.allowance);
  bool is_hopeless = false;
  try {
    return model_.EncodeChat(request.messages, request.tools, request.variables, [&](size_t bytes) {
      is_hopeless = bytes > context_.allowance->most_of_one();
      return held.Resize(bytes);
    });
  } catch (const api::Error& error) {
    if (error.code() != api::ErrorCode::kOutOfBudget) throw;
    if (!is_hopeless) throw Overloaded();
    throw RequestError(Status::kPayloadTooLarge,
                       request.settings.names.messages +
                           ": the model's chat template takes more memory for the conversation "
                           "than one request may have: send a shorter one",
                       request.settings.names.messages, "too_large");
  }
}

AnswerFn Service::PrepareChat(ChatRequest request, AnswerKind kind, NewWriterFn writer) try {
  api::ChatPrompt prompt = RenderChat(request);
  CheckRoom({prompt.tokens}, request.settings, request.settings.names.messages);
  CheckScores({prompt.tokens}, request.settings);
  std::vector<std::string>& stop = request.settings.stop;
  stop.insert(stop.end(), prompt.stop.begin(), prompt.stop.end());
  AnswerForm form;
  form.num_template_stops = std::ssize(prompt.stop);
  form.grammar = model_.MakeGrammar(request.settings.json_schema, prompt.tools, prompt.thinking);
  form.tools = std::move(prompt.tools);
  form.thinking = std::move(prompt.thinking);
  form.writer = std::move(writer);
  return StartGeneration(kind, request.settings, {std::move(prompt.tokens)}, std::move(form));
} catch (const api::Error& error) {
  throw FromModel(error, request.settings.names);
}

AnswerFn Service::Complete(std::string_view body) {
  CompletionRequest request = ParseCompletionRequest(body, parsing());
  CheckModel(request.settings.model);
  CheckCount(request.prompts.size() * static_cast<size_t>(request.settings.n));
  auto prompts = Tokens(request.prompts, "prompt",
                        request.parse_special ? TextUse::kWithSpecial : TextUse::kPrompt);
  CheckRoom(prompts, request.settings, "prompt");
  CheckScores(prompts, request.settings);
  AnswerForm form;
  for (size_t i = 0; i < prompts.size() && request.settings.echo; ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    form.echoes.push_back(text != nullptr ? *text : model_.Detokenize(prompts[i]));
  }
  return StartGeneration(AnswerKind::kCompletion, std::move(request.settings), std::move(prompts),
                         std::move(form));
}

AnswerFn Service::StartGeneration(AnswerKind kind, GenerationSettings settings,
                                  std::vector<std::vector<api::TokenId>> prompts, AnswerForm form) {
  return [this, kind, settings = std::move(settings), prompts = std::move(prompts),
          form = std::move(form)](std::shared_ptr<Reply> reply) {
    auto exchange = std::make_shared<GenerationExchange>(context_, NewHead(kind), settings, form,
                                                         std::move(reply));
    try {
      exchange->Start(prompts);
    } catch (const api::Error& error) {
      throw FromModel(error, settings.names);
    }
    return exchange;
  };
}

void Service::CheckDimensions(const std::optional<int64_t>& dimensions) const {
  const int64_t size = model_.info().embedding_size;
  if (dimensions.value_or(size) == size) return;
  throw RequestError(Status::kBadRequest,
                     fmt::format("dimensions: expected {}, the size of this model's embeddings, "
                                 "found {}",
                                 size, *dimensions),
                     "dimensions", "invalid_value");
}

AnswerFn Service::Embed(std::string_view body) {
  const EmbeddingsRequest request = ParseEmbeddingsRequest(body, parsing());
  CheckModel(request.model);
  CheckDimensions(request.dimensions);
  return
      [this, as_base64 = request.as_base64,
       texts = Tokens(request.inputs, "input", TextUse::kEmbedding)](std::shared_ptr<Reply> reply) {
        auto exchange =
            std::make_shared<EmbeddingExchange>(context_, name_, as_base64, std::move(reply));
        exchange->Start(texts);
        return exchange;
      };
}

AnswerFn Service::Tokenize(std::string_view body) {
  const TokenizeRequest request = ParseTokenizeRequest(body, parsing());
  const auto tokens = model_.Tokenize(request.content, request.add_special, request.parse_special);
  std::function<std::string(api::TokenId)> piece_of;
  if (request.with_pieces)
    piece_of = [this](api::TokenId token) { return model_.TokenBytes(token); };
  return Sends(Document(TokensDocument(tokens, piece_of)));
}

AnswerFn Service::Detokenize(std::string_view body) {
  const DetokenizeRequest request = ParseDetokenizeRequest(body, parsing());
  return Sends(Document(ContentDocument(model_.Detokenize(request.tokens))));
}

AnswerFn Service::Models(std::string_view) {
  return Sends(Document(ModelsDocument(name_, created_, model_.info().context)));
}

AnswerFn Service::OneModel(std::string_view) {
  return Sends(Document(ModelDocument(name_, created_, model_.info().context)));
}

AnswerFn Service::Health(std::string_view) {
  const std::string fault = model_.stats().fault;
  if (is_stopping_) {
    return Sends({.status = Status::kUnavailable,
                  .body = HealthDocument("stopping", "the server is stopping")});
  }
  if (!fault.empty()) {
    return Sends({.status = Status::kUnavailable, .body = HealthDocument("fault", fault)});
  }
  return Sends(Document(HealthDocument("ok", "")));
}

AnswerFn Service::Prometheus(std::string_view) {
  return Sends({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                .body = metrics_.Text(model_.info(), model_.stats())});
}

AnswerFn Service::HearthStats(std::string_view) {
  return Sends(Document(StatsDocument(name_, model_.info(), model_.stats())));
}

AnswerFn Service::Neurons(std::string_view) {
  return Sends(Document(NeuronsDocument(model_.WatchNeurons(), model_.info().is_streamed)));
}

}  // namespace hearth::serve
