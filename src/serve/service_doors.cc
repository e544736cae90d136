// The Responses API and the Messages API: chats in other words (serve/doors/).
#include <iterator>
#include <optional>
#include <utility>

#include "serve/doors/messages_request.h"
#include "serve/doors/messages_writer.h"
#include "serve/doors/responses_request.h"
#include "serve/doors/responses_writer.h"
#include "serve/service.h"
#include "serve/tool_requests.h"

namespace hearth::serve {
AnswerFn Service::Respond(std::string_view body) {
  ResponsesRequest request = ParseResponsesRequest(body, parsing());
  std::vector<api::ChatMessage>& messages = request.chat.messages;
  if (!request.previous_response.empty()) {
    std::optional<ResponseStore::Stored> before = responses_.Find(request.previous_response);
    if (!before) {
      throw RequestError(Status::kNotFound,
                         "previous_response_id: there is no such response, or no longer: send the "
                         "conversation as input",
                         "previous_response_id", "previous_response_not_found");
    }
    before->messages.insert(before->messages.end(), std::make_move_iterator(messages.begin()),
                            std::make_move_iterator(messages.end()));
    messages = std::move(before->messages);
  }
  CheckToolResults(messages, request.chat.settings.names, "call_id");
  const std::vector<api::ChatMessage> conversation = messages;
  if (!request.instructions.empty()) {
    messages.insert(messages.begin(), {.role = "system", .content = request.instructions});
  }
  ChatRequest chat = std::move(request.chat);
  NewWriterFn writer = [this, request, conversation](const AnswerHead& head, int64_t) {
    StoreAnswerFn store;
    if (request.store) {
      store = [this, id = head.id, conversation](api::ChatMessage answer) {
        std::vector<api::ChatMessage> whole = conversation;
        whole.push_back(std::move(answer));
        responses_.Put(id, {std::move(whole)});
      };
    }
    return NewResponsesWriter(head, request, std::move(store));
  };
  return ChatOf(std::move(chat), AnswerKind::kResponse, std::move(writer));
}

AnswerFn Service::Message(std::string_view body) {
  NewWriterFn writer = [](const AnswerHead& head, int64_t prompt_tokens) {
    return NewMessagesWriter(head, prompt_tokens);
  };
  return ChatOf(ParseMessagesRequest(body, false, parsing()), AnswerKind::kMessage,
                std::move(writer));
}

AnswerFn Service::CountTokens(std::string_view body) {
  ChatRequest request = ParseMessagesRequest(body, true, parsing());
  const std::string asked = request.settings.model;
  return host_->With(asked, [request = std::move(request)](ModelService& model) {
    return model.CountTokens(request);
  });
}

}  // namespace hearth::serve
