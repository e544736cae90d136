// How the answers of one request are written: the documents and events of an API.
#pragma once

#include <string>
#include <vector>

#include "serve/answers.h"
#include "serve/request_error.h"

namespace hearth::serve {

// An event of a stream. `name`: its "event" field, none where empty.
struct StreamEvent {
  std::string name;
  std::string data;
};

// One request, on one thread at a time. Answers are numbered as in Answer::index.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // The whole answer. May be called on another thread than the rest, once, instead of all below.
  virtual std::string Document(const std::vector<Answer>& answers, const Usage& usage) = 0;

  // The events of a stream: what is new of an answer (first: it opens that answer), then its end
  // together with what the last call of Delta for it held.
  virtual std::vector<StreamEvent> Delta(const Answer& delta, bool first) = 0;
  // After the end of all answers.
  virtual std::vector<StreamEvent> End(const Usage& usage) = 0;
  // The last event of a stream that fails after its head.
  virtual StreamEvent Failure(const RequestError& error) = 0;
};

}  // namespace hearth::serve
