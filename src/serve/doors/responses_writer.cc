#include "serve/doors/responses_writer.h"

#include <optional>
#include <utility>

namespace hearth::serve {
namespace {

Json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const AnswerHead& head, const ResponsesRequest& request, StoreAnswerFn store)
      : head_(head),
        custom_tools_(request.custom_tools),
        echoed_(request.echoed),
        store_(std::move(store)) {}

  std::string Document(const std::vector<Answer>& answers, const Usage& usage) override {
    const Answer& answer = answers.front();
    if (!answer.thoughts.empty()) output_.push_back(Reasoning(answer.thoughts, "completed"));
    if (!answer.text.empty()) output_.push_back(Message(answer.text, "completed"));
    for (const CallOfTool& call : answer.calls) output_.push_back(Call(call, "completed"));
    last_ = answer;
    if (IsCut() && !output_.empty()) output_.back()["status"] = "incomplete";
    whole_.content = answer.text;
    whole_.reasoning = answer.thoughts;
    for (const CallOfTool& call : answer.calls) {
      whole_.tool_calls.push_back({call.id, call.name, call.arguments});
    }
    if (store_) store_(whole_);
    return JsonText(Response(&usage));
  }

  std::vector<StreamEvent> Delta(const Answer& delta, bool first) override {
    events_.clear();
    if (first) {
      Add("response.created", {{"response", Response(nullptr)}});
      Add("response.in_progress", {{"response", Response(nullptr)}});
    }
    if (!delta.thoughts.empty()) AddThoughts(delta.thoughts);
    if (!delta.text.empty()) AddText(delta.text);
    for (const CallOfTool& call : delta.calls) AddCall(call);
    if (delta.finish_reason) last_ = delta;
    return std::exchange(events_, {});
  }

  std::vector<StreamEvent> End(const Usage& usage) override {
    events_.clear();
    Close();
    if (store_) store_(whole_);
    Add(IsCut() ? "response.incomplete" : "response.completed", {{"response", Response(&usage)}});
    return std::exchange(events_, {});
  }

  StreamEvent Failure(const RequestError& error) override {
    Json event = {{"type", "error"},
                  {"code", error.code().empty() ? Json(nullptr) : Json(error.code())},
                  {"message", error.what()},
                  {"param", error.param().empty() ? Json(nullptr) : Json(error.param())},
                  {"sequence_number", sequence_++}};
    return {"error", JsonText(event)};
  }

 private:
  enum class Open { kNothing, kReasoning, kMessage, kCall };

  bool IsCut() const { return last_.finish_reason == api::FinishReason::kLength; }

  // Ids of items follow from that of the response, so that they are the same in every event.
  std::string ItemId(const char* kind, size_t index) const {
    return std::string(kind) + "_" + head_.id.substr(head_.id.find('_') + 1) + "_" +
           std::to_string(index);
  }
  Json Reasoning(const std::string& thoughts, const char* status) const {
    return {{"type", "reasoning"},
            {"id", ItemId("rs", output_.size())},
            {"summary", Json::array()},
            {"content", Json::array({{{"type", "reasoning_text"}, {"text", thoughts}}})},
            {"status", status}};
  }
  Json Message(const std::string& text, const char* status) const {
    return {{"type", "message"},
            {"id", ItemId("msg", output_.size())},
            {"status", status},
            {"role", "assistant"},
            {"content", text.empty() ? Json::array() : Json::array({TextPart(text)})}};
  }
  Json Call(const CallOfTool& call, const char* status) const {
    const bool is_custom = custom_tools_.count(call.name) > 0;
    Json item = {{"type", is_custom ? "custom_tool_call" : "function_call"},
                 {"id", ItemId(is_custom ? "ctc" : "fc", output_.size())},
                 {"call_id", call.id},
                 {"name", call.name},
                 {"status", status}};
    item[is_custom ? "input" : "arguments"] =
        is_custom ? CustomInput(call.arguments) : call.arguments;
    return item;
  }

  // usage: null while it is under way.
  Json Response(const Usage* usage) const {
    Json response = {{"id", head_.id},
                     {"object", "response"},
                     {"created_at", head_.created},
                     {"status", usage == nullptr ? "in_progress"
                                : IsCut()        ? "incomplete"
                                                 : "completed"},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", head_.model},
                     {"output", output_}};
    if (usage != nullptr && IsCut()) {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    response.update(echoed_);
    response["usage"] = nullptr;
    if (usage == nullptr) return response;
    response["usage"] = {{"input_tokens", usage->prompt_tokens},
                         {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}}},
                         {"output_tokens", usage->completion_tokens},
                         {"output_tokens_details", {{"reasoning_tokens", 0}}},
                         {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
    return response;
  }

  void Add(const char* type, const Json& members) {
    Json event = {{"type", type}};
    event.update(members);
    event["sequence_number"] = sequence_++;
    events_.push_back({type, JsonText(event)});
  }
  // An event about the item that is open, or a part of it.
  void AddAbout(const char* type, Json members, bool of_part) {
    Json event = {{"item_id", item_["id"]}, {"output_index", output_.size()}};
    if (of_part) event["content_index"] = 0;
    event.update(members);
    Add(type, event);
  }
  // The item before must be closed: its place decides this one's id.
  void Begin(Open kind, Json item) {
    open_ = kind;
    item_ = std::move(item);
    text_.clear();
    Add("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
  }

  void AddThoughts(const std::string& thoughts) {
    if (open_ != Open::kReasoning) {
      Close();
      Json item = Reasoning("", "in_progress");
      item["content"] = Json::array();
      Begin(Open::kReasoning, std::move(item));
    }
    text_ += thoughts;
    whole_.reasoning += thoughts;
    AddAbout("response.reasoning_text.delta", {{"delta", thoughts}}, true);
  }
  void AddText(const std::string& text) {
    if (open_ != Open::kMessage) {
      Close();
      Begin(Open::kMessage, Message("", "in_progress"));
      AddAbout("response.content_part.added", {{"part", TextPart("")}}, true);
    }
    text_ += text;
    whole_.content += text;
    AddAbout("response.output_text.delta", {{"delta", text}, {"logprobs", Json::array()}}, true);
  }
  void AddCall(const CallOfTool& call) {
    if (!call.name.empty()) {
      Close();
      call_ = {call.index, call.id, call.name, ""};
      Begin(Open::kCall, Call(call_, "in_progress"));
    }
    call_.arguments += call.arguments;
    if (call.arguments.empty() || custom_tools_.count(call_.name) > 0) return;
    AddAbout("response.function_call_arguments.delta", {{"delta", call.arguments}}, false);
  }

  void Close() {
    const char* status = IsCut() ? "incomplete" : "completed";
    switch (std::exchange(open_, Open::kNothing)) {
      case Open::kNothing:
        return;
      case Open::kReasoning:
        AddAbout("response.reasoning_text.done", {{"text", text_}}, true);
        item_ = Reasoning(text_, status);
        break;
      case Open::kMessage:
        AddAbout("response.output_text.done", {{"text", text_}, {"logprobs", Json::array()}}, true);
        AddAbout("response.content_part.done", {{"part", TextPart(text_)}}, true);
        item_ = Message(text_, status);
        break;
      case Open::kCall:
        CloseCall();
        whole_.tool_calls.push_back({call_.id, call_.name, call_.arguments});
        item_ = Call(call_, status);
        break;
    }
    Add("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::move(item_));
  }
  void CloseCall() {
    if (custom_tools_.count(call_.name) == 0) {
      AddAbout("response.function_call_arguments.done",
               {{"name", call_.name}, {"arguments", call_.arguments}}, false);
      return;
    }
    const std::string input = CustomInput(call_.arguments);
    AddAbout("response.custom_tool_call_input.delta", {{"delta", input}}, false);
    AddAbout("response.custom_tool_call_input.done", {{"input", input}}, false);
  }

  const AnswerHead head_;
  const std::set<std::string> custom_tools_;
  const Json echoed_;
  const StoreAnswerFn store_;
  api::ChatMessage whole_ = {.role = "assistant", .content = ""};
  std::vector<StreamEvent> events_;
  int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are whole
  Open open_ = Open::kNothing;
  Json item_;         // that is open
  std::string text_;  // of it
  CallOfTool call_;   // likewise
  Answer last_;       // with which the answer ended
};

}  // namespace

std::unique_ptr<AnswerWriter> NewResponsesWriter(const AnswerHead& head,
                                                 const ResponsesRequest& request,
                                                 StoreAnswerFn store) {
  return std::make_unique<ResponsesWriter>(head, request, std::move(store));
}

}  // namespace hearth::serve
