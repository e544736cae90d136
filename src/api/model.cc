#include <algorithm>
#include <cmath>
#include <future>
#include <random>
#include <utility>

#include "api/load_options.h"
#include "api/model_impl.h"
#include "api/tools.h"
#include "base/memory_lock.h"
#include "engine/load/obey_plan.h"
#include "engine/session/prompt.h"
#include "text/chat/harmony_grammar.h"
#include "text/grammar/json_schema_grammar.h"

namespace hearth::api {
namespace {

std::optional<ChatFormat> ChatFormatOf(const LoadOptions& options) {
  if (options.chat_format.empty()) return std::nullopt;
  return ParseChatFormat(options.chat_format);
}

SamplingOptions ToEngine(const Sampling& sampling) {
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .repetition_window = sampling.repetition_window,
          .frequency_penalty = sampling.frequency_penalty,
          .presence_penalty = sampling.presence_penalty,
          .logit_bias = sampling.logit_bias,
          .seed = sampling.seed};
}

FinishReason ToApi(hearth::FinishReason reason) {
  switch (reason) {
    case hearth::FinishReason::kStop:
      return FinishReason::kStop;
    case hearth::FinishReason::kLength:
      return FinishReason::kLength;
    case hearth::FinishReason::kCancelled:
      break;
  }
  return FinishReason::kCancelled;
}

TokenScore ToApi(const hearth::TokenScore& score) { return {score.id, score.logprob}; }

std::vector<ScoredToken> ToApi(const std::vector<hearth::ScoredToken>& scores) {
  std::vector<ScoredToken> out;
  for (const hearth::ScoredToken& scored : scores) {
    out.push_back({ToApi(scored.token), {}});
    for (const hearth::TokenScore& top : scored.top) out.back().top.push_back(ToApi(top));
  }
  return out;
}

Outcome ToApi(const BatchOutcome& from) {
  Outcome to = {.finish_reason = ToApi(from.finish_reason),
                .stop_text = from.stop_text,
                .error = {},
                .prompt_tokens = from.prompt_tokens,
                .reused_tokens = from.reused_tokens,
                .generated = from.generated,
                .wait_ms = from.wait_ms,
                .prefill_ms = from.prefill_ms,
                .decode_ms = from.decode_ms};
  if (from.error) to.error = api::ToApi(*from.error);
  return to;
}

// What the engine takes for granted.
void CheckRequest(const GenerateRequest& request, int64_t vocab_size) {
  const int top = request.top_logprobs.value_or(0);
  if (top < 0 || top > GenerateRequest::kMostTopLogprobs) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"top_logprobs"}, "value",
                        "0 to " + std::to_string(GenerateRequest::kMostTopLogprobs),
                        std::to_string(top));
  }
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (id >= 0 && id < vocab_size) continue;
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"logit_bias"}, "token id",
                        "0 to " + std::to_string(vocab_size - 1), std::to_string(id));
  }
}

BatchRequest ToEngine(GenerateRequest request, Listener listener) {
  BatchRequest batch;
  batch.prompt = std::move(request.prompt);
  batch.generate.max_tokens = request.max_tokens;
  batch.generate.sampling = ToEngine(request.sampling);
  batch.generate.stop = std::move(request.stop);
  batch.generate.top_logprobs = request.top_logprobs;
  batch.generate.on_prefill = std::move(listener.on_prefill);
  if (listener.on_token) {
    batch.on_token = [tell = std::move(listener.on_token)](
                         std::string_view text, const std::vector<hearth::ScoredToken>& scores) {
      tell(text, ToApi(scores));
    };
  }
  if (listener.on_prompt) {
    batch.on_prompt = [tell = std::move(listener.on_prompt)](
                          const std::vector<hearth::ScoredToken>& scores) { tell(ToApi(scores)); };
  }
  batch.on_done = [tell = std::move(listener.on_done)](const BatchOutcome& outcome) {
    if (tell) tell(ToApi(outcome));
  };
  return batch;
}

// Where a schema is wrong, for errors that are about nothing else.
constexpr std::string_view kSchemaPlace = "JSON schema";

// Null where answers may say anything.
std::shared_ptr<const Grammar> GrammarOf(const std::optional<std::string>& schema,
                                         const std::shared_ptr<const ToolFormat>& tools,
                                         bool has_channels, const Tokenizer& tokenizer,
                                         const std::shared_ptr<GrammarMemory>& memory) {
  try {
    if (has_channels) {
      if (!tools) return HarmonyGrammar({}, {.answer_schema = schema}, tokenizer, memory);
      const ToolFormat::Impl& format = tools->impl();
      return HarmonyGrammar(format.functions, format.GrammarOptions(schema), tokenizer, memory);
    }
    if (tools) return tools->impl().MakeGrammar(schema, tokenizer, memory);
    if (!schema) return nullptr;
    return schema->empty() ? JsonObjectGrammar() : JsonSchemaGrammar(*schema, memory);
  } catch (const hearth::Error& error) {
    // An error about tools names its own field.
    if (!schema || !error.field().empty()) throw;
    const bool says_so = error.where() == kSchemaPlace;
    const std::string problem(says_so ? error.problem() : std::string_view(error.what()));
    throw Error(api::ToApi(error).code(), "json_schema: " + problem, "json_schema");
  }
}

bool HaveOneGrammar(const GenerateRequest& a, const GenerateRequest& b) {
  return a.json_schema == b.json_schema && a.tools == b.tools && a.grammar == b.grammar &&
         a.thinking == b.thinking;
}

std::vector<float> OfLengthOne(std::vector<float> vector) {
  double sum = 0;
  for (const float x : vector) sum += static_cast<double>(x) * static_cast<double>(x);
  if (sum == 0) return vector;
  const double scale = 1 / std::sqrt(sum);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) * scale);
  return vector;
}

std::unique_ptr<Model::Impl> LoadImpl(const std::string& path, const EngineOptions& engine,
                                      const LoadOptions& options) {
  // What is wrong is told before anything is loaded.
  ChatFormatOf(options);
  if (options.parallel < 1 || options.parallel > kMostParallel) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"parallel"},
                        "requests that are computed together",
                        "1 to " + std::to_string(kMostParallel), std::to_string(options.parallel));
  }
  std::unique_ptr<Engine> loaded = Engine::Load(path, engine, options.on_progress);
  CheckLoaded(options, *loaded);
  const std::string not_locked = options.locks_memory ? LockMemory() : "";
  if (options.on_warning) {
    if (const std::string& why = loaded->device().why_none; !why.empty()) {
      options.on_warning("the processor computes alone: " + why);
    }
    for (const std::string& doubt : DoubtsAbout(*loaded)) options.on_warning(doubt);
    if (!not_locked.empty()) options.on_warning("memory may be swapped out: " + not_locked);
  }
  std::unique_ptr<SessionKeeper> sessions;
  if (!options.session_folder.empty()) {
    sessions = OpenSessions(*loaded, {.folder = options.session_folder,
                                      .limit_bytes = options.session_limit_bytes,
                                      .warn = options.on_warning});
  }
  return std::make_unique<Model::Impl>(std::move(loaded), options.parallel, options.queue,
                                       ChatFormatOf(options), std::move(sessions));
}

}  // namespace

// How every answer begins: requests go on with copies.
struct AnswerGrammar::Impl {
  GrammarMatcher start;
};
AnswerGrammar::AnswerGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
AnswerGrammar::~AnswerGrammar() = default;

uint64_t RandomSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

void Ticket::Cancel() const noexcept {
  if (state_) state_->cancel.store(true, std::memory_order_relaxed);
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::Load(const std::string& path, const LoadOptions& options) {
  return Translated([&] {
    const auto load = [&](EngineOptions engine) {
      MakeRoomForRequests(engine, options.parallel,
                          options.session_folder.empty() ? 0 : SessionKeeper::kMemoryBytes);
      return Model(LoadImpl(path, engine, options));
    };
    if (options.plan.empty()) return load(EngineOptionsOf(options));
    // On a thread of its own: those of the model keep to the plan's processors as it does, and the
    // caller's goes on wherever it likes.
    return std::async(std::launch::async, [&] { return load(PlannedOptions(path, options)); })
        .get();
  });
}

const ModelInfo& Model::info() const { return impl_->info(); }
Stats Model::stats() const { return impl_->stats(); }
void Model::Close(std::chrono::milliseconds most_to_save) {
  constexpr std::chrono::hours kMost{24};  // far from where clocks end
  impl_->Close(std::chrono::steady_clock::now() +
               std::min<std::chrono::milliseconds>(most_to_save, kMost));
}
NeuronPicture Model::WatchNeurons() const { return impl_->WatchNeurons(); }

std::vector<AdapterInfo> Model::adapters() const { return impl_->adapters(); }
void Model::SetAdapterScales(const std::vector<AdapterScale>& scales) {
  Translated([&] { impl_->SetAdapterScales(scales); });
}

std::vector<TokenId> Model::Tokenize(std::string_view text, bool as_prompt,
                                     bool parse_special) const {
  return Translated([&] {
    const EncodeOptions options = {.parse_special = parse_special};
    if (!as_prompt) return impl_->tokenizer().Encode(text, options);
    return EncodePrompt(impl_->engine().model(), text, impl_->info().context, options);
  });
}

std::vector<TokenId> Model::TokenizeForEmbedding(std::string_view text) const {
  return Translated(
      [&] { return EncodeForEmbedding(impl_->engine().model(), text, impl_->info().context); });
}

std::string Model::TokenBytes(TokenId id) const {
  if (id < 0 || id >= impl_->info().vocab_size) {
    throw Error(ErrorCode::kInvalidArgument, "token id: expected 0 to " +
                                                 std::to_string(impl_->info().vocab_size - 1) +
                                                 ", found " + std::to_string(id));
  }
  return std::string(impl_->tokenizer().TokenBytes(id));
}

std::string Model::Detokenize(const std::vector<TokenId>& tokens) const {
  for (const TokenId id : tokens) TokenBytes(id);  // refuses what is none
  return DecodeText(impl_->tokenizer(), tokens);
}

ChatPrompt Model::EncodeChat(const std::vector<ChatMessage>& messages, const ToolOptions& tools,
                             const std::string& variables,
                             const std::function<bool(size_t bytes)>& may_hold) const {
  return Translated([&] {
    const ChatTemplate& chat = impl_->chat_template();
    size_t bytes = 0;
    for (const ChatMessage& message : messages) bytes += message.content.size();
    for (const Tool& tool : tools.tools) bytes += tool.description.size();
    const Tokenizer& tokenizer = impl_->tokenizer();
    const int64_t context = impl_->info().context;
    const auto refuse = [&](const std::string& found) {
      throw ContextFull("messages", context, found);
    };
    const int64_t least = LeastTokens(tokenizer, bytes);
    if (least > context) refuse("at least " + std::to_string(least));
    std::vector<ToolFunction> functions = ToEngine(tools);
    ChatPrompt prompt;
    const std::vector<ChatPiece> pieces =
        chat.Render(ToEngine(messages), true, functions, variables, may_hold);
    prompt.tokens = hearth::EncodeChat(tokenizer, pieces);
    if (std::ssize(prompt.tokens) > context) refuse(std::to_string(prompt.tokens.size()));
    prompt.stop = impl_->info().chat_stop;
    prompt.tools = MakeToolFormat(tools, std::move(functions), chat.tool_syntax());
    if (const auto thinking = chat.ThinkingOf(pieces)) {
      prompt.thinking = {thinking->begin, thinking->end, thinking->is_open, thinking->has_channels};
    }
    return prompt;
  });
}

std::shared_ptr<const AnswerGrammar> Model::MakeGrammar(
    const std::optional<std::string>& json_schema, const std::shared_ptr<const ToolFormat>& tools,
    const std::optional<Thinking>& thinking) const {
  return Translated([&]() -> std::shared_ptr<const AnswerGrammar> {
    const bool has_channels = thinking && thinking->has_channels;
    auto grammar =
        GrammarOf(json_schema, tools, has_channels, impl_->tokenizer(), impl_->grammar_memory());
    if (!grammar) return nullptr;
    if (thinking && !has_channels) {
      grammar =
          AfterThinking(*grammar, ToEngine(*thinking), impl_->tokenizer(), impl_->grammar_memory());
    }
    return std::make_shared<const AnswerGrammar>(std::make_unique<const AnswerGrammar::Impl>(
        AnswerGrammar::Impl{GrammarMatcher(grammar, impl_->sorted_vocabulary())}));
  });
}

std::vector<Ticket> Model::Start(std::vector<GenerateRequest> requests,
                                 std::vector<Listener> listeners) {
  return Translated([&] {
    if (requests.size() != listeners.size()) {
      throw Error(ErrorCode::kInvalidArgument, "as many listeners as requests are needed");
    }
    // Answers to one question have one grammar, which is made once.
    std::vector<std::shared_ptr<const AnswerGrammar>> grammars;
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerateRequest& request = requests[i];
      CheckRequest(request, impl_->info().vocab_size);
      if (i > 0 && HaveOneGrammar(request, requests[i - 1])) {
        grammars.push_back(grammars.back());
      } else {
        grammars.push_back(request.grammar
                               ? request.grammar
                               : MakeGrammar(request.json_schema, request.tools, request.thinking));
      }
    }
    std::vector<BatchRequest> batch;
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < requests.size(); ++i) {
      auto visible =
          VisibleTokens(FormOf(requests[i].tools, requests[i].thinking), impl_->tokenizer());
      AdapterMix adapters = impl_->MixOf(requests[i].adapters);
      if (!listeners[i].on_prefill) listeners[i].on_prefill = std::move(requests[i].on_prefill);
      batch.push_back(ToEngine(std::move(requests[i]), std::move(listeners[i])));
      batch.back().adapters = std::move(adapters);
      batch.back().generate.visible_tokens = std::move(visible);
      if (grammars[i]) {
        batch.back().generate.grammar = std::make_shared<GrammarMatcher>(grammars[i]->impl().start);
      }
      tickets.push_back(Impl::MakeTicket(batch.back()));
    }
    impl_->Start(std::move(batch));
    return tickets;
  });
}

GenerateResult Model::Generate(const GenerateRequest& request,
                               const std::function<bool(std::string_view text)>& on_text,
                               const std::function<void(const Ticket& ticket)>& on_start) {
  GenerateResult result;
  std::promise<Outcome> done;
  Ticket ticket;
  std::promise<void> started;  // the ticket is there
  const std::shared_future<void> has_started = started.get_future().share();
  std::exception_ptr thrown;
  bool is_wanted = static_cast<bool>(on_text);  // more text
  Listener listener;
  listener.on_token = [&](std::string_view text, std::vector<ScoredToken> scores) {
    result.text += text;
    std::move(scores.begin(), scores.end(), std::back_inserter(result.scores));
    has_started.wait();
    if (text.empty() || !is_wanted || thrown) return;
    is_wanted = false;
    try {
      is_wanted = on_text(text);
    } catch (...) {
      thrown = std::current_exception();
    }
    if (!is_wanted) ticket.Cancel();
  };
  listener.on_done = [&](const Outcome& outcome) { done.set_value(outcome); };
  ticket = Start({request}, {listener}).front();
  try {
    if (on_start) on_start(ticket);
  } catch (...) {
    thrown = std::current_exception();
    ticket.Cancel();
  }
  started.set_value();
  result.outcome = done.get_future().get();
  if (thrown) std::rethrow_exception(thrown);
  if (result.outcome.error) throw *result.outcome.error;
  return result;
}

std::vector<Ticket> Model::StartEmbeddings(std::vector<std::vector<TokenId>> texts,
                                           const std::vector<EmbeddingFn>& on_done) {
  return Translated([&] {
    if (texts.size() != on_done.size()) {
      throw Error(ErrorCode::kInvalidArgument, "as many functions as texts are needed");
    }
    std::vector<BatchRequest> batch;
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < texts.size(); ++i) {
      BatchRequest& request = batch.emplace_back();
      request.prompt = std::move(texts[i]);
      request.wants_embedding = true;
      request.adapters = impl_->MixOf(std::nullopt);
      request.on_done = [tell = on_done[i]](const BatchOutcome& outcome) {
        if (tell) tell(OfLengthOne(outcome.embedding), ToApi(outcome));
      };
      tickets.push_back(Impl::MakeTicket(request));
    }
    impl_->Start(std::move(batch));
    return tickets;
  });
}

std::vector<float> Model::Embed(const std::vector<TokenId>& tokens) {
  std::promise<std::pair<std::vector<float>, Outcome>> done;
  StartEmbeddings({tokens}, {[&](const std::vector<float>& embedding, const Outcome& outcome) {
                    done.set_value({embedding, outcome});
                  }});
  const auto [embedding, outcome] = done.get_future().get();
  if (outcome.error) throw *outcome.error;
  if (outcome.finish_reason == FinishReason::kCancelled) {
    throw Error(ErrorCode::kCancelled, "the model is being closed");
  }
  return embedding;
}

}  // namespace hearth::api
