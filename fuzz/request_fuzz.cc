// Fuzzes the bodies of HTTP requests: a request with values in their ranges, or a RequestError
// whose document is JSON. The first byte chooses the endpoint.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "serve/request_error.h"
#include "serve/requests.h"

namespace {

using namespace hearth::serve;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckSettings(const GenerationSettings& settings) {
  Require(!settings.max_tokens || *settings.max_tokens >= (settings.echo ? 0 : 1));
  Require(settings.n >= 1 && settings.n <= kMostChoices);
  Require(settings.sampling.temperature >= 0 && settings.sampling.temperature <= 2);
  Require(settings.sampling.top_p >= 0 && settings.sampling.top_p <= 1);
  for (const auto& [id, bias] : settings.sampling.logit_bias) {
    Require(id >= 0 && bias >= -100 && bias <= 100);
  }
  for (const std::string& stop : settings.stop) Require(!stop.empty());
}

void Parse(uint8_t endpoint, std::string_view body) {
  switch (endpoint % 5) {
    case 0: {
      const ChatRequest request = ParseChatRequest(body);
      Require(!request.messages.empty());
      CheckSettings(request.settings);
      break;
    }
    case 1: {
      const CompletionRequest request = ParseCompletionRequest(body);
      Require(!request.prompts.empty());
      CheckSettings(request.settings);
      break;
    }
    case 2:
      Require(!ParseEmbeddingsRequest(body).inputs.empty());
      break;
    case 3:
      ParseTokenizeRequest(body);
      break;
    default:
      ParseDetokenizeRequest(body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    Parse(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const RequestError& error) {
    Require(nlohmann::json::accept(error.ToJson()));
  }
  return 0;
}
