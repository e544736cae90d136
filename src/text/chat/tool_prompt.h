// Conversations with tools, for chat templates that know tools and for those that do not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_format.h"
#include "text/tools/tool_function.h"

namespace hearth {

// What the templates of one model expect of messages.
struct ToolMessageStyle {
  bool parsed_arguments = true;  // arguments as a mapping, not as its JSON text
  bool null_content = true;      // of an assistant that only called; else an empty text
  bool short_ids = false;        // ids of nine letters and digits
  // Of Harmony: thoughts are "thinking", and what is said beside a call is one of them.
  bool has_channels = false;
};

bool MentionsTools(const std::vector<ChatMessage>& messages);

// The functions and messages as the JSON that templates take for "tools" and "messages". Results of
// tools have the name of their function too.
std::string ToolsJson(const std::vector<ToolFunction>& functions);
// Arguments that are not a JSON object, because an answer was cut off, are a text; empty ones are
// {}.
std::string MessagesJson(const std::vector<ChatMessage>& messages, const ToolMessageStyle& style);

// The first call whose arguments are neither empty nor a JSON object, as the path of its arguments
// ("messages[1].tool_calls[0].function.arguments"); nothing where there is none.
std::optional<std::string> FindBadArguments(const std::vector<ChatMessage>& messages);

// The same conversation without messages of the system: the next message of the user begins with
// what it said. Where none follows, the user says it.
std::vector<ChatMessage> WithoutSystem(const std::vector<ChatMessage>& messages);

// A description of the functions and of how to call them (GenericToolSyntax), in words.
std::string DescribeTools(const std::vector<ToolFunction>& functions);

// The same conversation without tools: calls are written into the assistant's texts, results are
// said by the user, what follows each other in one message. The description, where it is not empty,
// stands after the system's text, or before the first of the user's.
enum class DescriptionPlace { kSystem, kUser };
std::vector<ChatMessage> WithoutTools(const std::vector<ChatMessage>& messages,
                                      const std::string& description, DescriptionPlace place);

}  // namespace hearth
