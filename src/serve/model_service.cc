#include "serve/model_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "serve/answers.h"
#include "serve/doors/messages_writer.h"
#include "serve/embedding_exchange.h"

namespace hearth::serve {
namespace {

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t RandomBase() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

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

}  // namespace

ModelService::ModelService(api::Model& model, std::string name, const ServiceContext& shared,
                           std::function<void()> on_rest)
    : model_(model),
      name_(std::move(name)),
      checks_(model, shared.held_bytes),
      created_(SecondsSince1970()),
      context_({.post = shared.post, .work = shared.work, .on_rest = std::move(on_rest)}, model,
               shared.metrics, shared.allowance),
      id_base_(RandomBase()) {}

AnswerFn ModelService::Beside(std::function<AnswerFn()> prepare) {
  return PreparesBeside(context_, std::move(prepare));
}

AnswerHead ModelService::NewHead(AnswerKind kind) {
  const char* prefix = kind == AnswerKind::kChat         ? "chatcmpl-"
                       : kind == AnswerKind::kCompletion ? "cmpl-"
                       : kind == AnswerKind::kResponse   ? "resp_"
                                                         : "msg_";
  return {kind, fmt::format("{}{:016x}{:08x}", prefix, id_base_, next_id_++), SecondsSince1970(),
          name_};
}

AnswerFn ModelService::Chat(ChatRequest request, AnswerKind kind, NewWriterFn writer) {
  checks_.CheckCount(static_cast<size_t>(request.settings.n));
  // Templates and grammars of schemas may take long, however short the request is.
  return Beside([this, request = std::move(request), kind, writer = std::move(writer)] {
    return PrepareChat(request, kind, writer);
  });
}

AnswerFn ModelService::CountTokens(ChatRequest request) {
  return Beside([this, request = std::move(request)] {
    try {
      return Sends({.body = CountedTokensDocument(std::ssize(RenderChat(request).tokens))});
    } catch (const api::Error& error) {
      throw FromModel(error, request.settings.names);
    }
  });
}

// What the model's template takes meanwhile is part of what the server holds for its clients.
api::ChatPrompt ModelService::RenderChat(const ChatRequest& request) const {
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

AnswerFn ModelService::PrepareChat(ChatRequest request, AnswerKind kind, NewWriterFn writer) try {
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

AnswerFn ModelService::Complete(CompletionRequest request) {
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

AnswerFn ModelService::StartGeneration(AnswerKind kind, GenerationSettings settings,
                                       std::vector<std::vector<api::TokenId>> prompts,
                                       AnswerForm form) {
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

AnswerFn ModelService::Embed(const EmbeddingsRequest& request) {
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

AnswerFn ModelService::Tokenize(const TokenizeRequest& request) {
  const auto tokens = model_.Tokenize(request.content, request.add_special, request.parse_special);
  std::function<std::string(api::TokenId)> piece_of;
  if (request.with_pieces)
    piece_of = [this](api::TokenId token) { return model_.TokenBytes(token); };
  return Sends({.body = TokensDocument(tokens, piece_of)});
}

AnswerFn ModelService::Detokenize(const DetokenizeRequest& request) {
  return Sends({.body = ContentDocument(model_.Detokenize(request.tokens))});
}

}  // namespace hearth::serve
