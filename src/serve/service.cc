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

AnswerFn Document(std::string body) { return Sends({.body = std::move(body)}); }

// What the tokens of a text are for; with special: those that are written out in it are read.
enum class TextUse { kPrompt, kWithSpecial, kEmbedding };

// field: what the request calls its texts.
std::vector<std::vector<api::TokenId>> Tokens(const api::Model& model,
                                              const std::vector<TextOrTokens>& texts,
                                              const char* field, TextUse use) try {
  std::vector<std::vector<api::TokenId>> all;
  for (const TextOrTokens& text : texts) {
    if (const auto* words = std::get_if<std::string>(&text)) {
      all.push_back(use == TextUse::kEmbedding
                        ? model.TokenizeForEmbedding(*words)
                        : model.Tokenize(*words, true, use == TextUse::kWithSpecial));
    } else {
      all.push_back(std::get<std::vector<api::TokenId>>(text));
    }
  }
  return all;
} catch (const api::Error& error) {
  throw FromModel(error, {.prompt = field});
}

// A document that the model makes of a body.
AnswerFn DocumentOf(api::Model& model, std::string (*make)(api::Model&, std::string_view),
                    std::string_view body) try {
  return Document(make(model, body));
} catch (const api::Error& error) {
  throw FromModel(error);
}

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
      name_(options_.model_name.empty() ? model.info().name : options_.model_name),
      checks_(model, name_, options_.strict_model, options_.held_bytes),
      gate_(options_.gate, name_),
      created_(SecondsSince1970()),
      context_{model, metrics_, std::make_shared<Allowance>(options_.held_bytes), std::move(post),
               std::move(work)},
      responses_(context_.allowance, options_.held_bytes / kStoredShare),
      id_base_(RandomBase()) {}

std::shared_ptr<Exchange> Service::Handle(const RequestHead& head, std::string body,
                                          std::shared_ptr<Reply> reply) {
  if (gate_.IsAllowedPreflight(head)) {
    reply->Send(gate_.origins().AnswerPreflight(head));
    return nullptr;
  }
  const std::string path = Gate::RoutePath(head.target);
  const std::optional<Endpoint> endpoint = gate_.EndpointOf(head);
  if (!endpoint) {
    reply->Send(PageFileAt(path).value());
    return nullptr;
  }
  if (path.rfind(kMessagesPath, 0) == 0) reply = ReplyOfMessages(std::move(reply));
  const bool is_long = body.size() > options_.long_body_bytes;
  std::function<AnswerFn()> read = [this, endpoint = *endpoint, text = std::move(body)] {
    AllowanceShare document(context_.allowance);
    if (!document.Resize(DocumentBytes(text))) throw Overloaded();
    return Read(endpoint, text);
  };
  return AnswerOrError([&] { return is_long ? Beside(std::move(read)) : read(); }, reply);
}

AnswerFn Service::Read(Endpoint endpoint, std::string_view body) {
  switch (endpoint) {
    case Endpoint::kChat:
      return Chat(body);
    case Endpoint::kResponses:
      return Respond(body);
    case Endpoint::kMessages:
      return Message(body);
    case Endpoint::kCountTokens:
      return CountTokens(body);
    case Endpoint::kCompletions:
      return Complete(body);
    case Endpoint::kEmbeddings:
      return Embed(body);
    case Endpoint::kModels:
      return Document(ModelsDocument(name_, created_, model_.info().context));
    case Endpoint::kModel:
      return Document(ModelDocument(name_, created_, model_.info().context));
    case Endpoint::kStats:
      return Document(StatsDocument(name_, model_.info(), model_.stats()));
    case Endpoint::kNeurons:
      return Document(NeuronsDocument(model_.WatchNeurons(), model_.info().is_streamed));
    case Endpoint::kAdapters:
      return DocumentOf(model_, &AdaptersDocument, body);
    case Endpoint::kSetAdapters:
      return DocumentOf(model_, &SetAdaptersDocument, body);
    case Endpoint::kTokenize:
      return Tokenize(body);
    case Endpoint::kDetokenize:
      return Detokenize(body);
    case Endpoint::kHealth:
      return Health();
    case Endpoint::kMetrics:
      return Sends({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = metrics_.Text(model_.info(), model_.stats())});
  }
  throw RequestError(Status::kInternal, "there is no such endpoint");
}

AnswerFn Service::Beside(std::function<AnswerFn()> prepare) {
  return [this, prepare = std::move(prepare)](std::shared_ptr<Reply> reply) {
    auto preparation = std::make_shared<Preparation>(context_, std::move(reply));
    preparation->Start(prepare);
    return preparation;
  };
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
  checks_.CheckName(request.settings.model);
  checks_.CheckCount(static_cast<size_t>(request.settings.n));
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
  checks_.CheckPrompts({prompt.tokens}, request.settings, request.settings.names.messages);
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
  checks_.CheckName(request.settings.model);
  checks_.CheckCount(request.prompts.size() * static_cast<size_t>(request.settings.n));
  auto prompts = Tokens(model_, request.prompts, "prompt",
                        request.parse_special ? TextUse::kWithSpecial : TextUse::kPrompt);
  checks_.CheckPrompts(prompts, request.settings, "prompt");
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

AnswerFn Service::Embed(std::string_view body) {
  const EmbeddingsRequest request = ParseEmbeddingsRequest(body, parsing());
  checks_.CheckName(request.model);
  checks_.CheckDimensions(request.dimensions);
  return [this, as_base64 = request.as_base64,
          texts = Tokens(model_, request.inputs, "input", TextUse::kEmbedding)](
             std::shared_ptr<Reply> reply) {
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
  return Document(TokensDocument(tokens, piece_of));
}

AnswerFn Service::Detokenize(std::string_view body) {
  const DetokenizeRequest request = ParseDetokenizeRequest(body, parsing());
  return Document(ContentDocument(model_.Detokenize(request.tokens)));
}

AnswerFn Service::Health() const {
  const std::string fault = model_.stats().fault;
  if (gate_.is_stopping()) {
    return Sends({.status = Status::kUnavailable,
                  .body = HealthDocument("stopping", "the server is stopping")});
  }
  if (!fault.empty()) {
    return Sends({.status = Status::kUnavailable, .body = HealthDocument("fault", fault)});
  }
  return Document(HealthDocument("ok", ""));
}

}  // namespace hearth::serve
