// Requests of the Responses API (https://platform.openai.com/docs/api-reference/responses).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "serve/json_fields.h"
#include "serve/requests.h"

namespace hearth::serve {

struct ResponsesRequest {
  ChatRequest chat;  // its messages do not have those of the previous response, nor instructions
  std::string instructions;       // the system message of this response alone
  std::string previous_response;  // an id; empty: none
  bool store = true;              // so that a later request may go on after it
  // Tools of the type "custom", whose input is a text; in `chat` they are functions with one.
  std::set<std::string> custom_tools;
  // What the response repeats of the request.
  Json echoed = Json::object();
};

// Throws RequestError, naming the field, for what is malformed, out of range or not available; and
// nothing else, whatever the bytes.
ResponsesRequest ParseResponsesRequest(std::string_view body, ParseOptions options = {});

// The text that a call of a custom tool is about, of its arguments.
std::string CustomInput(const std::string& arguments);

}  // namespace hearth::serve
