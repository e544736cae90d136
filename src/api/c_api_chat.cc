// The C interface: conversations with tools, answers of a schema, scores.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/c_api_support.h"

using namespace hearth::api;

struct hearth_prompt {
  ChatPrompt prompt;
};

struct hearth_answer {
  std::string text, reasoning, stop_text;
  std::vector<ToolCall> calls;
  bool ends_in_calls = false;
  hearth_result result = {};
  std::vector<hearth_score> scores;
  std::vector<std::vector<hearth_score>> tops;  // by score
};

namespace {

ChatMessage ToMessage(const hearth_turn& turn) {
  Require(turn.role != nullptr, "a turn needs a role");
  ChatMessage message = {.role = turn.role, .content = TextOr(turn.content, "")};
  message.reasoning = TextOr(turn.reasoning, "");
  message.tool_call_id = TextOr(turn.tool_call_id, "");
  for (const hearth_tool_call& call :
       Array(turn.tool_calls, turn.tool_call_count, "tool_calls are missing")) {
    Require(call.name != nullptr, "a call needs a name");
    message.tool_calls.push_back({TextOr(call.id, ""), call.name, TextOr(call.arguments, "")});
  }
  return message;
}

ToolOptions ToTools(const hearth_chat& chat) {
  ToolOptions options;
  for (const hearth_tool& tool : Array(chat.tools, chat.tool_count, "tools are missing")) {
    Require(tool.name != nullptr, "a tool needs a name");
    options.tools.push_back(
        {tool.name, TextOr(tool.description, ""), TextOr(tool.parameters, ""), tool.strict != 0});
  }
  options.must_call = chat.must_call != 0;
  options.function = TextOr(chat.function, "");
  options.parallel = chat.one_call_at_most == 0;
  return options;
}

// Tells parts to the caller, and keeps them.
class Listening {
 public:
  Listening(const hearth_question& question, hearth_answer& answer)
      : question_(question), answer_(answer) {}

  bool Take(const std::vector<AnswerPart>& parts) {
    bool goes_on = true;
    for (const AnswerPart& part : parts) {
      Keep(part);
      goes_on = goes_on && Tell(part);
    }
    return goes_on;
  }

 private:
  void Keep(const AnswerPart& part) {
    if (part.kind == AnswerPart::Kind::kText) {
      answer_.text += part.text;
    } else if (part.kind == AnswerPart::Kind::kThought) {
      answer_.reasoning += part.text;
    } else {
      const auto number = static_cast<size_t>(part.call);
      if (answer_.calls.size() <= number) answer_.calls.resize(number + 1);
      answer_.calls[number].name += part.name;
      answer_.calls[number].arguments += part.text;
    }
  }

  bool Tell(const AnswerPart& part) const {
    if (question_.on_part == nullptr) return true;
    const hearth_part told = {.kind = part.kind == AnswerPart::Kind::kText ? HEARTH_PART_TEXT
                                      : part.kind == AnswerPart::Kind::kThought
                                          ? HEARTH_PART_THOUGHT
                                          : HEARTH_PART_CALL,
                              .call = part.call,
                              .name = part.name.empty() ? nullptr : part.name.c_str(),
                              .text = part.text.c_str(),
                              .bytes = part.text.size()};
    return question_.on_part(&told, question_.user) != 0;
  }

  const hearth_question& question_;
  hearth_answer& answer_;
};

GenerateRequest RequestOf(Session& session, const hearth_question& question,
                          const hearth_request* request) {
  GenerateRequest asked = ToRequest(request);
  if (question.json_schema != nullptr) asked.json_schema = question.json_schema;
  if (question.chooses_adapters != 0) {
    asked.adapters = ToScales(question.adapters, question.adapter_count);
  }
  if (question.wants_scores != 0) asked.top_logprobs = question.top_scores;
  if (question.on_prefill != nullptr) {
    asked.on_prefill = [&session, question](int64_t done, int64_t total) {
      if (question.on_prefill(done, total, question.user) == 0) session.Cancel();
    };
  }
  const auto tokens = Array(question.tokens, question.token_count, "tokens are missing");
  asked.prompt.assign(tokens.begin(), tokens.end());
  if (question.prompt == nullptr) return asked;
  Require(tokens.empty(), "a question has a prompt or tokens, not both");
  const ChatPrompt& prompt = question.prompt->prompt;
  asked.prompt = prompt.tokens;
  asked.stop.insert(asked.stop.end(), prompt.stop.begin(), prompt.stop.end());
  asked.tools = prompt.tools;
  asked.thinking = prompt.thinking;
  return asked;
}

hearth_score ToScore(const TokenScore& score) {
  return {.token = score.id, .logprob = score.logprob};
}

void KeepScores(const std::vector<ScoredToken>& scores, hearth_answer& answer) {
  for (const ScoredToken& scored : scores) {
    answer.scores.push_back(ToScore(scored.token));
    std::vector<hearth_score>& top = answer.tops.emplace_back();
    for (const TokenScore& score : scored.top) top.push_back(ToScore(score));
  }
}

// Generates, and keeps what comes.
std::unique_ptr<hearth_answer> Ask(Session& session, const hearth_question& question,
                                   const hearth_request* request) {
  GenerateRequest asked = RequestOf(session, question, request);
  auto answer = std::make_unique<hearth_answer>();
  Listening listening(question, *answer);
  const bool has_prompt = question.prompt != nullptr;
  AnswerReader reader(asked.thinking, asked.tools);
  const auto on_text = [&](std::string_view text) { return listening.Take(reader.Push(text)); };
  const GenerateResult generated = has_prompt ? session.Replace(std::move(asked), on_text)
                                              : session.Generate(std::move(asked), on_text);
  listening.Take(reader.Finish());
  answer->ends_in_calls = reader.ends_in_calls();
  answer->result = ToResult(generated.outcome);
  answer->stop_text = generated.outcome.stop_text;
  KeepScores(generated.scores, *answer);
  return answer;
}

}  // namespace

extern "C" {

hearth_status hearth_prompt_new(const hearth_model* model, const hearth_chat* chat,
                                hearth_prompt** prompt, hearth_error* error) {
  Clear(prompt);
  return Guarded(error, [&] {
    Require(model != nullptr && chat != nullptr && prompt != nullptr,
            "a model, a chat and a place for the prompt are needed");
    const hearth_chat all = Grown(*chat);
    std::vector<ChatMessage> messages;
    for (const hearth_turn& turn : Array(all.turns, all.turn_count, "turns are missing")) {
      messages.push_back(ToMessage(turn));
    }
    *prompt = new hearth_prompt{
        model->model.EncodeChat(messages, ToTools(all), TextOr(all.variables, ""))};
    return HEARTH_OK;
  });
}

void hearth_prompt_free(hearth_prompt* prompt) { delete prompt; }

size_t hearth_prompt_length(const hearth_prompt* prompt) {
  return prompt != nullptr ? prompt->prompt.tokens.size() : 0;
}

hearth_status hearth_ask(hearth_session* session, const hearth_question* question,
                         const hearth_request* request, hearth_answer** answer,
                         hearth_error* error) {
  Clear(answer);
  return Guarded(error, [&] {
    Require(session != nullptr && question != nullptr && answer != nullptr,
            "a session, a question and a place for the answer are needed");
    *answer = Ask(session->session, Grown(*question), request).release();
    return HEARTH_OK;
  });
}

void hearth_answer_free(hearth_answer* answer) { delete answer; }

const char* hearth_answer_text(const hearth_answer* answer) {
  return answer != nullptr ? answer->text.c_str() : nullptr;
}

const char* hearth_answer_reasoning(const hearth_answer* answer) {
  return answer != nullptr ? answer->reasoning.c_str() : nullptr;
}

size_t hearth_answer_call_count(const hearth_answer* answer) {
  return answer != nullptr ? answer->calls.size() : 0;
}

const char* hearth_answer_call_name(const hearth_answer* answer, size_t index) {
  return index < hearth_answer_call_count(answer) ? answer->calls[index].name.c_str() : nullptr;
}

const char* hearth_answer_call_arguments(const hearth_answer* answer, size_t index) {
  return index < hearth_answer_call_count(answer) ? answer->calls[index].arguments.c_str()
                                                  : nullptr;
}

int hearth_answer_ends_in_calls(const hearth_answer* answer) {
  return answer != nullptr && answer->ends_in_calls ? 1 : 0;
}

void hearth_answer_result(const hearth_answer* answer, hearth_result* result) {
  Clear(result);
  if (answer != nullptr && result != nullptr) *result = answer->result;
}

const char* hearth_answer_stop_text(const hearth_answer* answer) {
  return answer != nullptr ? answer->stop_text.c_str() : nullptr;
}

size_t hearth_answer_score_count(const hearth_answer* answer) {
  return answer != nullptr ? answer->scores.size() : 0;
}

hearth_score hearth_answer_score(const hearth_answer* answer, size_t index) {
  return index < hearth_answer_score_count(answer) ? answer->scores[index] : hearth_score{};
}

const hearth_score* hearth_answer_top_scores(const hearth_answer* answer, size_t index,
                                             size_t* count) {
  Clear(count);
  if (index >= hearth_answer_score_count(answer)) return nullptr;
  if (count != nullptr) *count = answer->tops[index].size();
  return answer->tops[index].data();
}

}  // extern "C"
