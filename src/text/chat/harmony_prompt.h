// Writes conversations in Harmony (harmony.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_format.h"
#include "text/chat/harmony.h"
#include "text/chat/type_script.h"
#include "text/tokenizer/chat_piece.h"
#include "text/tools/tool_function.h"

namespace hearth {

// What the first message of a conversation says.
struct HarmonySystem {
  std::string identity = "You are ChatGPT, a large language model trained by OpenAI.";
  std::string knowledge_cutoff = "2024-06";  // empty: not said
  std::string date;                          // of today; empty: not said
  std::string reasoning_effort = "medium";   // in any case of its letters; empty: not said
  std::vector<ToolNamespace> tools;          // that the model was trained with
  bool has_functions = false;                // the developer gives some
};
std::string HarmonySystemText(const HarmonySystem& system);

// What a developer says: instructions, functions, or both.
std::string HarmonyDeveloperText(const std::string& instructions,
                                 const std::vector<ToolNamespace>& tools);

enum class HarmonyEnding {
  kConversation,  // nothing follows
  kCompletion,    // the opening of the assistant's next message
  kTraining,      // the last message, if it is an answer, ends as the model ends it
};

// Thoughts before the last answer (channel final) are left out, as the format asks for. Only the
// markers are trusted.
std::vector<ChatPiece> RenderHarmony(const std::vector<HarmonyMessage>& messages,
                                     HarmonyEnding ending);

// A whole conversation, with today's date. variables: a JSON object, or empty; of it
// "reasoning_effort" and "model_identity" count, which must be texts. Throws
// Error(kInvalidArgument) for other roles, and for a result of a tool that nothing called.
std::vector<ChatPiece> RenderHarmonyChat(const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt,
                                         const std::vector<ToolFunction>& functions,
                                         std::string_view variables);

// The same conversation with at most one call in each message, and its result after it: Harmony
// ends an answer with each call.
std::vector<ChatMessage> WithOneCallEach(const std::vector<ChatMessage>& messages);

}  // namespace hearth
