#include "serve/doors/messages_writer.h"

#include <optional>
#include <utility>

#include "serve/json_fields.h"

namespace hearth::serve {
namespace {

const char* ErrorType(Status status) {
  switch (status) {
    case Status::kUnauthorized:
      return "authentication_error";
    case Status::kForbidden:
      return "permission_error";
    case Status::kNotFound:
      return "not_found_error";
    case Status::kPayloadTooLarge:
      return "request_too_large";
    case Status::kTooManyRequests:
      return "rate_limit_error";
    case Status::kUnavailable:
      return "overloaded_error";
    case Status::kInternal:
      return "api_error";
    default:
      return "invalid_request_error";
  }
}

// {"type": "error", "error": {"type", "message"}}.
std::string ErrorDocumentOf(Status status, const std::string& message) {
  return JsonText(
      {{"type", "error"}, {"error", {{"type", ErrorType(status)}, {"message", message}}}});
}

Json UsageOf(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

// Why an answer ended, null while it goes on, and the text that it ended at.
Json StopOf(const Answer& answer) {
  const auto stop = [](const Json& reason, const Json& text) {
    return Json{{"stop_reason", reason}, {"stop_sequence", text}};
  };
  if (!answer.finish_reason) return stop(nullptr, nullptr);
  if (*answer.finish_reason == api::FinishReason::kLength) return stop("max_tokens", nullptr);
  if (answer.ends_in_calls) return stop("tool_use", nullptr);
  if (!answer.stop_text.empty()) return stop("stop_sequence", answer.stop_text);
  return stop("end_turn", nullptr);
}

// What the API calls the id of a call.
std::string ToolUseId(const std::string& call_id) {
  const size_t underscore = call_id.find('_');
  return "toolu_" + call_id.substr(underscore == std::string::npos ? 0 : underscore + 1);
}

// The arguments of a call; those of a call that was cut are not a JSON object and are shown as
// text.
Json InputOf(const std::string& arguments) {
  Json input = Json::parse(arguments.empty() ? "{}" : arguments, nullptr, false);
  if (input.is_object()) return input;
  return {{"_incomplete", arguments}};
}

// Says errors as the Messages API does; everything else as it is.
class MessagesReply : public Reply {
 public:
  explicit MessagesReply(std::shared_ptr<Reply> reply) : reply_(std::move(reply)) {}

  void Send(Response response) override {
    if (response.status != Status::kOk) {
      const Json error = Json::parse(response.body, nullptr, false);
      const bool is_error = error.is_object() && error.contains("error");
      response.body =
          ErrorDocumentOf(response.status, is_error ? error["error"].value("message", "") : "");
    }
    reply_->Send(std::move(response));
  }
  void BeginStream() override { reply_->BeginStream(); }
  void SendEvent(std::string_view name, std::string_view data) override {
    reply_->SendEvent(name, data);
  }
  void EndStream() override { reply_->EndStream(); }

 private:
  const std::shared_ptr<Reply> reply_;
};

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(const AnswerHead& head, int64_t prompt_tokens)
      : head_(head), prompt_tokens_(prompt_tokens) {}

  std::string Document(const std::vector<Answer>& answers, const Usage& usage) override {
    const Answer& answer = answers.front();
    Json message = Message();
    if (!answer.thoughts.empty()) {
      message["content"].push_back(
          {{"type", "thinking"}, {"thinking", answer.thoughts}, {"signature", ""}});
    }
    if (!answer.text.empty()) {
      message["content"].push_back({{"type", "text"}, {"text", answer.text}});
    }
    for (const CallOfTool& call : answer.calls) {
      message["content"].push_back({{"type", "tool_use"},
                                    {"id", ToolUseId(call.id)},
                                    {"name", call.name},
                                    {"input", InputOf(call.arguments)}});
    }
    message.update(StopOf(answer));
    message["usage"] = UsageOf(usage);
    return JsonText(message);
  }

  std::vector<StreamEvent> Delta(const Answer& delta, bool first) override {
    events_.clear();
    if (first) {
      Json message = Message();
      message["usage"] = UsageOf({.prompt_tokens = prompt_tokens_});
      Add("message_start", {{"message", std::move(message)}});
      Add("ping", Json::object());
    }
    if (!delta.thoughts.empty()) {
      Open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      AddDelta({{"type", "thinking_delta"}, {"thinking", delta.thoughts}});
    }
    if (!delta.text.empty()) {
      Open(Block::kText, {{"type", "text"}, {"text", ""}});
      AddDelta({{"type", "text_delta"}, {"text", delta.text}});
    }
    for (const CallOfTool& call : delta.calls) AddCall(call);
    if (delta.finish_reason) last_ = delta;
    return std::exchange(events_, {});
  }

  std::vector<StreamEvent> End(const Usage& usage) override {
    events_.clear();
    Close();
    Add("message_delta", {{"delta", StopOf(last_)}, {"usage", UsageOf(usage)}});
    Add("message_stop", Json::object());
    return std::exchange(events_, {});
  }

  StreamEvent Failure(const RequestError& error) override {
    return {"error", ErrorDocumentOf(error.status(), error.what())};
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  Json Message() const {
    return {{"id", head_.id},           {"type", "message"},        {"role", "assistant"},
            {"model", head_.model},     {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}, {"usage", nullptr}};
  }

  void Add(const char* type, const Json& members) {
    Json event = {{"type", type}};
    event.update(members);
    events_.push_back({type, JsonText(event)});
  }
  void AddDelta(const Json& delta) {
    Add("content_block_delta", {{"index", index_}, {"delta", delta}});
  }
  void Open(Block kind, const Json& block) {
    if (open_ == kind && kind != Block::kCall) return;
    Close();
    open_ = kind;
    Add("content_block_start", {{"index", index_}, {"content_block", block}});
  }
  void Close() {
    if (open_ == Block::kNone) return;
    Add("content_block_stop", {{"index", index_}});
    ++index_;
    open_ = Block::kNone;
  }
  void AddCall(const CallOfTool& call) {
    if (!call.name.empty()) {
      Open(Block::kCall, {{"type", "tool_use"},
                          {"id", ToolUseId(call.id)},
                          {"name", call.name},
                          {"input", Json::object()}});
    }
    if (call.arguments.empty()) return;
    AddDelta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
  }

  const AnswerHead head_;
  const int64_t prompt_tokens_;
  std::vector<StreamEvent> events_;
  Block open_ = Block::kNone;
  int64_t index_ = 0;  // of the block that is open, or comes next
  Answer last_;        // with which the answer ended
};

}  // namespace

std::unique_ptr<AnswerWriter> NewMessagesWriter(const AnswerHead& head, int64_t prompt_tokens) {
  return std::make_unique<MessagesWriter>(head, prompt_tokens);
}

std::shared_ptr<Reply> ReplyOfMessages(std::shared_ptr<Reply> reply) {
  return std::make_shared<MessagesReply>(std::move(reply));
}

std::string CountedTokensDocument(int64_t tokens) { return JsonText({{"input_tokens", tokens}}); }

}  // namespace hearth::serve
