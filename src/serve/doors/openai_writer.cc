#include "serve/doors/openai_writer.h"

namespace hearth::serve {
namespace {

class OpenAiWriter : public AnswerWriter {
 public:
  OpenAiWriter(const AnswerHead& head, bool include_usage)
      : head_(head), include_usage_(include_usage) {}

  std::string Document(const std::vector<Answer>& answers, const Usage& usage) override {
    return AnswerDocument(head_, answers, usage);
  }
  std::vector<StreamEvent> Delta(const Answer& delta, bool first) override {
    return {{"", ChunkDocument(head_, delta, first, include_usage_)}};
  }
  std::vector<StreamEvent> End(const Usage& usage) override {
    std::vector<StreamEvent> events;
    if (include_usage_) events.push_back({"", UsageDocument(head_, usage)});
    events.push_back({"", "[DONE]"});
    return events;
  }
  StreamEvent Failure(const RequestError& error) override { return {"", error.ToJson()}; }

 private:
  const AnswerHead head_;
  const bool include_usage_;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewOpenAiWriter(const AnswerHead& head, bool include_usage) {
  return std::make_unique<OpenAiWriter>(head, include_usage);
}

}  // namespace hearth::serve
