#include "serve/generation_exchange.h"

#include <algorithm>
#include <utility>

#include "serve/doors/openai_writer.h"
#include "serve/tool_requests.h"

namespace hearth::serve {
namespace {

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Documents from here on take longer to write than others should wait.
constexpr size_t kLongAnswerBytes = size_t{256} << 10;

std::vector<NamedToken> Named(const api::Model& model,
                              const std::vector<api::ScoredToken>& scores) {
  const auto name = [&model](const api::TokenScore& score) {
    return NamedScore{model.TokenBytes(score.id), score.logprob};
  };
  std::vector<NamedToken> tokens;
  for (const api::ScoredToken& scored : scores) {
    NamedToken& token = tokens.emplace_back(NamedToken{name(scored.token), {}});
    for (const api::TokenScore& top : scored.top) token.top.push_back(name(top));
  }
  return tokens;
}

}  // namespace

GenerationExchange::GenerationExchange(ExchangeContext& context, AnswerHead head,
                                       GenerationSettings settings, AnswerForm form,
                                       std::shared_ptr<Reply> reply)
    : context_(context),
      head_(std::move(head)),
      settings_(std::move(settings)),
      form_(std::move(form)),
      reply_(std::move(reply)),
      held_(context.allowance) {}

api::GenerateRequest GenerationExchange::MakeRequest(const std::vector<api::TokenId>& prompt,
                                                     int64_t number) const {
  api::GenerateRequest request;
  request.prompt = prompt;
  const int64_t room = context_.model.info().context - std::ssize(prompt);
  // Where none is wanted, the one that the model chooses is dropped.
  request.max_tokens = std::max<int64_t>(std::min(settings_.max_tokens.value_or(room), room), 1);
  request.sampling = settings_.sampling;
  // Answers to one prompt differ, and are the same again with the same seed.
  request.sampling.seed = settings_.has_seed
                              ? settings_.sampling.seed + static_cast<uint64_t>(number)
                              : api::RandomSeed();
  request.stop = settings_.stop;
  request.adapters = settings_.adapters;
  request.top_logprobs = settings_.top_logprobs;
  request.tools = form_.tools;
  request.thinking = form_.thinking;
  request.grammar = form_.grammar;
  return request;
}

const std::string& GenerationExchange::EchoOf(size_t index) const {
  return form_.echoes[index / static_cast<size_t>(settings_.n)];
}

api::Listener GenerationExchange::MakeListener(size_t index,
                                               const std::vector<api::TokenId>& prompt) {
  api::Listener listener;
  ExchangeContext& context = context_;
  listener.on_token = [self = shared_from_this(), &context, index](
                          std::string_view text, const std::vector<api::ScoredToken>& scores) {
    context.post([self, index, text = std::string(text), tokens = Named(context.model, scores),
                  now = Clock::now()]() mutable {
      self->OnToken(index, std::move(text), std::move(tokens), now);
    });
  };
  if (settings_.echo && settings_.top_logprobs) {
    listener.on_prompt = [self = shared_from_this(), &context, index,
                          first = prompt.front()](const std::vector<api::ScoredToken>& scores) {
      std::vector<NamedToken> tokens = Named(context.model, scores);
      tokens.insert(tokens.begin(), {{context.model.TokenBytes(first), 0}, {}, false});
      context.post([self, index, tokens = std::move(tokens)]() mutable {
        self->OnPrompt(index, std::move(tokens));
      });
    };
  }
  listener.on_done = [self = shared_from_this(), &context, index](const api::Outcome& outcome) {
    context.post([self, index, outcome] { self->OnDone(index, outcome); });
  };
  return listener;
}

void GenerationExchange::Start(std::vector<std::vector<api::TokenId>> prompts) {
  writer_ = form_.writer ? form_.writer(head_, std::ssize(prompts.front()))
                         : NewOpenAiWriter(head_, settings_.include_usage);
  std::vector<api::GenerateRequest> requests;
  std::vector<api::Listener> listeners;
  for (const std::vector<api::TokenId>& prompt : prompts) {
    for (int64_t number = 0; number < settings_.n; ++number) {
      prompt_tokens_.push_back(std::ssize(prompt));
      listeners.push_back(MakeListener(requests.size(), prompt));
      requests.push_back(MakeRequest(prompt, number));
    }
  }
  choices_.resize(requests.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].answer.index = static_cast<int64_t>(i);
    if (settings_.top_logprobs) choices_[i].answer.scores.emplace();
    choices_[i].reader.emplace(form_.thinking, form_.tools);
  }
  reused_tokens_.resize(choices_.size());
  tickets_ = context_.model.Start(std::move(requests), std::move(listeners));
  context_.Begin(std::ssize(tickets_));
  Begin();
}

void GenerationExchange::Begin() {
  const std::shared_ptr<Reply> reply = reply_;  // which lives although it may abandon this
  if (settings_.stream) {
    // The head tells clients and proxies that an answer comes, however long it waits.
    is_streaming_ = true;
    reply->BeginStream();
  }
  if (!settings_.echo || settings_.top_logprobs) return;
  for (size_t i = 0; i < choices_.size() && reply_; ++i) OnPrompt(i, {});
}

// Puts the prompt before the answer.
void GenerationExchange::OnPrompt(size_t index, std::vector<NamedToken> scores) {
  if (!reply_) return;
  const std::string& text = EchoOf(index);
  // A space that a tokenizer puts before a text is no part of it.
  std::string joined;
  for (const NamedToken& token : scores) joined += token.token.bytes;
  const auto first = std::find_if(scores.begin(), scores.end(), [](const NamedToken& token) {
    return !token.token.bytes.empty();
  });
  if (first != scores.end() && joined == " " + text) first->token.bytes.erase(0, 1);
  Choice& choice = choices_[index];
  if (!settings_.stream) {
    if (!Hold(text, scores)) return;
    choice.answer.text = text;
    if (choice.answer.scores) choice.answer.scores = std::move(scores);
    return;
  }
  Answer delta;
  delta.text = text;
  for (const NamedToken& token : scores) {
    choice.answer.text_offset += CountCharacters(token.token.bytes);
  }
  if (settings_.top_logprobs) delta.scores = std::move(scores);
  SendDelta(choice, std::move(delta));
}

void GenerationExchange::Abandon() {
  reply_.reset();
  held_.Resize(0);
  for (const api::Ticket& ticket : tickets_) ticket.Cancel();
}

ExchangeReport GenerationExchange::Report() const {
  const Usage usage = UsageSoFar();
  return {.prompt_tokens = usage.prompt_tokens,
          .completion_tokens = usage.completion_tokens,
          .failure = failure_};
}

void GenerationExchange::AddParts(const std::vector<api::AnswerPart>& parts, Answer& to) {
  for (const api::AnswerPart& part : parts) {
    if (part.kind == api::AnswerPart::Kind::kText) {
      to.text += part.text;
    } else if (part.kind == api::AnswerPart::Kind::kThought) {
      to.thoughts += part.text;
    } else if (part.name.empty() && !to.calls.empty() && to.calls.back().index == part.call) {
      to.calls.back().arguments += part.text;
    } else {
      const std::string id = part.name.empty() ? "" : NewCallId();
      to.calls.push_back({part.call, id, part.name, part.text});
    }
  }
}

void GenerationExchange::AddText(Choice& choice, const std::string& text, bool at_end, Answer& to) {
  AddParts(choice.reader->Push(text), to);
  if (at_end) AddParts(choice.reader->Finish(), to);
  to.ends_in_calls = choice.reader->ends_in_calls();
}

void GenerationExchange::SendDelta(Choice& choice, Answer delta) {
  const std::shared_ptr<Reply> reply = reply_;  // which lives although it may abandon this
  delta.index = choice.answer.index;
  SendEvents(*reply, writer_->Delta(delta, !std::exchange(choice.is_open, true)));
}

void GenerationExchange::SendEvents(Reply& reply, const std::vector<StreamEvent>& events) {
  for (const StreamEvent& event : events) reply.SendEvent(event.name, event.data);
}

void GenerationExchange::OnToken(size_t index, std::string text, std::vector<NamedToken> scores,
                                 Clock::time_point when) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.has_token, true)) {
    context_.metrics.AddTimeBetweenTokens(Seconds(when - choice.last_token));
  } else {
    context_.metrics.AddTimeToFirstToken(Seconds(when - arrived_));
  }
  choice.last_token = when;
  ++choice.tokens;
  if (!reply_ || settings_.max_tokens == 0) return;
  Answer& answer = choice.answer;
  if (settings_.stream) {
    Answer delta;
    AddText(choice, text, false, delta);
    const bool is_empty = delta.text.empty() && delta.thoughts.empty() && delta.calls.empty();
    if (is_empty && scores.empty()) return;
    delta.text_offset = answer.text_offset;
    for (const NamedToken& token : scores) answer.text_offset += CountCharacters(token.token.bytes);
    if (settings_.top_logprobs) delta.scores = std::move(scores);
    SendDelta(choice, std::move(delta));
    return;
  }
  if (!Hold(text, scores)) return;
  AddText(choice, text, false, answer);
  if (answer.scores) {
    std::move(scores.begin(), scores.end(), std::back_inserter(*answer.scores));
  }
}

void GenerationExchange::OnDone(size_t index, const api::Outcome& outcome) {
  context_.End();
  Choice& choice = choices_[index];
  ++ended_;
  reused_tokens_[index] = outcome.reused_tokens;
  choice.tokens = std::ssize(outcome.generated);
  if (!reply_) return;
  if (outcome.error) return Fail(FromModel(*outcome.error, settings_.names));
  if (outcome.finish_reason == api::FinishReason::kCancelled) {
    return Fail({Status::kUnavailable, "the server is stopping", "", "stopping"});
  }
  const auto reason =
      settings_.max_tokens == 0 ? api::FinishReason::kLength : outcome.finish_reason;
  choice.answer.finish_reason = reason;
  const std::vector<std::string>& stops = settings_.stop;
  // Texts that the chat template ends at are no stop texts of the request.
  const bool is_own = std::find(stops.begin(), stops.end() - form_.num_template_stops,
                                outcome.stop_text) != stops.end() - form_.num_template_stops;
  if (is_own) choice.answer.stop_text = outcome.stop_text;
  if (settings_.stream) {
    Answer delta;
    AddText(choice, "", true, delta);
    delta.finish_reason = reason;
    delta.stop_text = choice.answer.stop_text;
    delta.text_offset = choice.answer.text_offset;
    SendDelta(choice, std::move(delta));
  } else {
    AddText(choice, "", true, choice.answer);
  }
  // A client that does not read has lost its stream by now.
  if (reply_ && ended_ == choices_.size()) Finish();
}

bool GenerationExchange::Hold(const std::string& text, const std::vector<NamedToken>& scores) {
  size_t bytes = held_.bytes() + text.size();
  for (const NamedToken& token : scores) bytes += (1 + token.top.size()) * kScoreBytes;
  if (held_.Resize(bytes)) return true;
  Fail(Overloaded());
  return false;
}

// What has been streamed cannot be taken back: the error is its last event.
void GenerationExchange::Fail(const RequestError& error) {
  const std::shared_ptr<Reply> reply = reply_;
  failure_ = static_cast<int>(error.status());
  Abandon();
  if (is_streaming_) {
    const StreamEvent event = writer_->Failure(error);
    reply->SendEvent(event.name, event.data);
    reply->EndStream();
  } else {
    reply->Send(ErrorResponse(error));
  }
}

Usage GenerationExchange::UsageSoFar() const {
  Usage usage;
  // Of every prompt once.
  for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(settings_.n)) {
    usage.prompt_tokens += prompt_tokens_[i];
    usage.cached_tokens += reused_tokens_[i];
  }
  if (settings_.max_tokens == 0) return usage;
  for (const Choice& choice : choices_) usage.completion_tokens += choice.tokens;
  return usage;
}

void GenerationExchange::Finish() {
  const Usage usage = UsageSoFar();
  if (!settings_.stream) return SendAnswers(usage);
  const std::shared_ptr<Reply> reply = std::exchange(reply_, nullptr);
  SendEvents(*reply, writer_->End(usage));
  reply->EndStream();
}

// A long document is written beside the server's thread.
void GenerationExchange::SendAnswers(const Usage& usage) {
  auto answers = std::make_shared<std::vector<Answer>>();
  for (Choice& choice : choices_) answers->push_back(std::move(choice.answer));
  const auto send = [this](std::string document) {
    const std::shared_ptr<Reply> reply = std::exchange(reply_, nullptr);
    held_.Resize(0);
    if (reply) reply->Send({.body = std::move(document)});
  };
  if (held_.bytes() <= kLongAnswerBytes) return send(writer_->Document(*answers, usage));
  context_.Begin();
  context_.work([self = shared_from_this(), &context = context_, answers, usage, send]() mutable {
    auto document = std::make_shared<std::string>(self->writer_->Document(*answers, usage));
    answers.reset();
    context.post([self = std::move(self), &context, document, send] {
      context.End();
      send(std::move(*document));
    });
  });
}

}  // namespace hearth::serve
