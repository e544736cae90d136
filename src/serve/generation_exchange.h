// A chat or a completion on its way: collects its answers or streams them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/answers.h"
#include "serve/doors/answer_writer.h"
#include "serve/exchange_context.h"
#include "serve/reply.h"
#include "serve/requests.h"

namespace hearth::serve {

// Makes the writer of a request (prompt_tokens: its prompt's).
using NewWriterFn =
    std::function<std::unique_ptr<AnswerWriter>(const AnswerHead& head, int64_t prompt_tokens)>;

// What answers may be.
struct AnswerForm {
  std::shared_ptr<const api::ToolFormat> tools;       // null: nothing may be called
  std::optional<api::Thinking> thinking;              // nothing: it has no thoughts
  std::shared_ptr<const api::AnswerGrammar> grammar;  // null: any text
  ptrdiff_t num_template_stops = 0;                   // at the end of the settings' stop texts
  NewWriterFn writer;                                 // empty: as the OpenAI API writes them
  std::vector<std::string> echoes;  // texts of the prompts that answers begin with
};

// Lives on the server's thread; tokens are posted to it from the model's.
class GenerationExchange : public Exchange,
                           public std::enable_shared_from_this<GenerationExchange> {
 public:
  GenerationExchange(ExchangeContext& context, AnswerHead head, GenerationSettings settings,
                     AnswerForm form, std::shared_ptr<Reply> reply);

  // n answers to every prompt. Throws api::Error where they cannot start.
  void Start(std::vector<std::vector<api::TokenId>> prompts);
  void Abandon() override;
  ExchangeReport Report() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    Answer answer;         // collected; of a stream what it has sent
    bool is_open = false;  // the stream has said so
    bool has_token = false;
    int64_t tokens = 0;                       // generated, so far
    std::optional<api::AnswerReader> reader;  // from the start on
    Clock::time_point last_token;
  };

  api::GenerateRequest MakeRequest(const std::vector<api::TokenId>& prompt, int64_t number) const;
  api::Listener MakeListener(size_t index, const std::vector<api::TokenId>& prompt);
  const std::string& EchoOf(size_t index) const;
  void Begin();
  void OnToken(size_t index, std::string text, std::vector<NamedToken> scores,
               Clock::time_point when);
  void OnPrompt(size_t index, std::vector<NamedToken> scores);
  void OnDone(size_t index, const api::Outcome& outcome);
  // Counts what a token adds to an answer that is collected; false: that is too much, and has been
  // answered.
  bool Hold(const std::string& text, const std::vector<NamedToken>& scores);
  void Fail(const RequestError& error);
  Usage UsageSoFar() const;
  void Finish();
  void SendAnswers(const Usage& usage);
  // Puts what is new of the text, or its end, into an answer or a part of one.
  static void AddText(Choice& choice, const std::string& text, bool at_end, Answer& to);
  static void AddParts(const std::vector<api::AnswerPart>& parts, Answer& to);
  void SendDelta(Choice& choice, Answer delta);
  static void SendEvents(Reply& reply, const std::vector<StreamEvent>& events);

  ExchangeContext& context_;
  const AnswerHead head_;
  const GenerationSettings settings_;
  const AnswerForm form_;
  std::shared_ptr<AnswerWriter> writer_;
  std::shared_ptr<Reply> reply_;  // null once nobody waits for it
  AllowanceShare held_;           // what is collected, in bytes of the document it will be
  std::vector<api::Ticket> tickets_;
  std::vector<Choice> choices_;
  std::vector<int64_t> prompt_tokens_, reused_tokens_;
  size_t ended_ = 0;
  int failure_ = 0;  // the status of the error that it ended with
  bool is_streaming_ = false;
  const Clock::time_point arrived_ = Clock::now();
};

}  // namespace hearth::serve
