#include "serve/service.h"

#include <optional>
#include <utility>

#include "serve/answers.h"
#include "serve/doors/adapter_documents.h"
#include "serve/doors/messages_writer.h"
#include "serve/json_fields.h"
#include "serve/models/one_model.h"
#include "serve/page.h"

namespace hearth::serve {
namespace {

// Conversations of the Responses API may take 1 / kStoredShare of what is held for clients.
constexpr size_t kStoredShare = 4;
// A full queue has usually moved on by then.
constexpr char kRetrySeconds[] = "1";

AnswerFn Document(std::string body) { return Sends({.body = std::move(body)}); }

// A document that a model makes of a body.
ModelHost::UseFn DocumentOf(std::string (*make)(api::Model&, std::string_view),
                            std::string_view body) {
  return [make, text = std::string(body)](ModelService& model) {
    try {
      return Document(make(model.model(), text));
    } catch (const api::Error& error) {
      throw FromModel(error);
    }
  };
}

AnswerFn StatsOf(const ModelService& service) {
  const api::Model& model = service.model();
  return Document(StatsDocument(service.name(), model.info(), model.stats()));
}

AnswerFn NeuronsOf(const ModelService& service) {
  const api::Model& model = service.model();
  return Document(NeuronsDocument(model.WatchNeurons(), model.info().is_streamed));
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

Service::Service(const NewHostFn& new_host, ServiceOptions options, PostFn post, PostFn work)
    : options_(std::move(options)),
      gate_(options_.gate),
      allowance_(std::make_shared<Allowance>(options_.held_bytes)),
      work_{.post = std::move(post), .work = std::move(work)},
      responses_(allowance_, options_.held_bytes / kStoredShare),
      host_(new_host({.metrics = metrics_,
                      .allowance = allowance_,
                      .post = work_.post,
                      .work = work_.work,
                      .held_bytes = options_.held_bytes})) {}

Service::Service(api::Model& model, const ServiceOptions& options, PostFn post, PostFn work)
    : Service(
          [&](const ServiceContext& shared) {
            return std::make_unique<OneModel>(
                model, options.model_name.empty() ? model.info().name : options.model_name,
                options.strict_model, shared);
          },
          options, std::move(post), std::move(work)) {}

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
  Question question = {.endpoint = *endpoint,
                       .model = *endpoint == Endpoint::kModel
                                    ? Gate::ModelOf(head.target)
                                    : QueryOfTarget(head.target, "model")};
  // What is asked of the server alone has no body that counts.
  const bool is_long = head.method == "POST" && body.size() > options_.long_body_bytes;
  std::function<AnswerFn()> read = [this, question = std::move(question), text = std::move(body)] {
    AllowanceShare document(allowance_);
    if (!document.Resize(DocumentBytes(text))) throw Overloaded();
    return Read(question, text);
  };
  return AnswerOrError([&] { return is_long ? PreparesBeside(work_, std::move(read)) : read(); },
                       reply);
}

AnswerFn Service::Read(const Question& question, std::string_view body) {
  switch (question.endpoint) {
    case Endpoint::kChat:
      return ChatOf(ParseChatRequest(body, parsing()), AnswerKind::kChat, {});
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
      return Document(ModelsDocument(host_->List()));
    case Endpoint::kModel:
      return Document(ModelDocument(host_->Find(question.model)));
    case Endpoint::kStats:
      return host_->WithLoaded(question.model, StatsOf);
    case Endpoint::kNeurons:
      return host_->WithLoaded(question.model, NeuronsOf);
    case Endpoint::kAdapters:
      return host_->WithLoaded(question.model, DocumentOf(&AdaptersDocument, body));
    case Endpoint::kSetAdapters:
      return host_->WithLoaded(question.model, DocumentOf(&SetAdaptersDocument, body));
    case Endpoint::kTokenize:
      return Tokenize(body);
    case Endpoint::kDetokenize:
      return Detokenize(body);
    case Endpoint::kHealth:
      return Health();
    case Endpoint::kMetrics:
      return Sends({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = metrics_.Text(host_->State())});
  }
  throw RequestError(Status::kInternal, "there is no such endpoint");
}

AnswerFn Service::ChatOf(ChatRequest request, AnswerKind kind, NewWriterFn writer) {
  const std::string asked = request.settings.model;
  return host_->With(asked, [request = std::move(request), kind, writer = std::move(writer)](
                                ModelService& model) { return model.Chat(request, kind, writer); });
}

AnswerFn Service::Complete(std::string_view body) {
  CompletionRequest request = ParseCompletionRequest(body, parsing());
  const std::string asked = request.settings.model;
  return host_->With(asked, [request = std::move(request)](ModelService& model) {
    return model.Complete(request);
  });
}

AnswerFn Service::Embed(std::string_view body) {
  EmbeddingsRequest request = ParseEmbeddingsRequest(body, parsing());
  const std::string asked = request.model;
  return host_->With(
      asked, [request = std::move(request)](ModelService& model) { return model.Embed(request); });
}

AnswerFn Service::Tokenize(std::string_view body) {
  TokenizeRequest request = ParseTokenizeRequest(body, parsing());
  const std::string asked = request.model;
  return host_->With(asked, [request = std::move(request)](ModelService& model) {
    return model.Tokenize(request);
  });
}

AnswerFn Service::Detokenize(std::string_view body) {
  DetokenizeRequest request = ParseDetokenizeRequest(body, parsing());
  const std::string asked = request.model;
  return host_->With(asked, [request = std::move(request)](ModelService& model) {
    return model.Detokenize(request);
  });
}

AnswerFn Service::Health() const {
  if (gate_.is_stopping()) {
    return Sends({.status = Status::kUnavailable,
                  .body = HealthDocument("stopping", "the server is stopping")});
  }
  for (const ModelState& model : host_->State().models) {
    const std::string& fault = model.stats.fault;
    if (fault.empty()) continue;
    const std::string name = model.label.empty() ? "" : model.label + ": ";
    return Sends({.status = Status::kUnavailable, .body = HealthDocument("fault", name + fault)});
  }
  return Document(HealthDocument("ok", ""));
}

}  // namespace hearth::serve
