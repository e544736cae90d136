// Tools in requests of chats: the functions, what to do with them, and calls in messages.
#pragma once

#include <string>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/json_fields.h"
#include "serve/request_error.h"

namespace hearth::serve {

// "tools", "tool_choice" and "parallel_tool_calls". No tools where none are to be called. Throws
// RequestError, as all that read requests.
api::ToolOptions TakeTools(Fields& fields);

// "tool_calls" of an assistant's message.
std::vector<api::ToolCall> TakeToolCalls(Fields& message);

// Throws for a result of a tool whose call is in no message before it. id: what the request calls
// the id of the call.
void CheckToolResults(const std::vector<api::ChatMessage>& messages, const RequestNames& names = {},
                      std::string_view id = "tool_call_id");

// "call_" and 24 letters and digits, different every time.
std::string NewCallId();

}  // namespace hearth::serve
