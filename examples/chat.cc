// Chats on standard input, a question a line: chat MODEL.gguf.
#include <exception>
#include <hearth/hearth.hpp>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: chat MODEL.gguf\n";
    return 2;
  }
  try {
    using namespace hearth::api;
    Model model = Model::Load(argv[1], {.parallel = 1});
    std::vector<ChatMessage> messages;
    for (std::string question; std::getline(std::cin, question);) {
      messages.push_back({"user", question});
      // What was said before is in the KV cache: only the question is computed.
      const ChatPrompt prompt = model.EncodeChat(messages);
      GenerateRequest request = {.prompt = prompt.tokens, .max_tokens = 100, .stop = prompt.stop};
      const GenerateResult answer = model.Generate(request, [](std::string_view text) {
        std::cout << text << std::flush;
        return true;
      });
      std::cout << "\n(" << answer.outcome.reused_tokens << " of " << answer.outcome.prompt_tokens
                << " tokens were known)\n";
      messages.push_back({"assistant", answer.text});
    }
  } catch (const std::exception& error) {
    std::cerr << "chat: " << error.what() << "\n";
    return 1;
  }
}
