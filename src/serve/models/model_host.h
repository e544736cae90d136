// Whoever has the models of a server: one that is always there, or a folder of them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "serve/answers.h"
#include "serve/metrics.h"
#include "serve/model_service.h"
#include "serve/request_error.h"

namespace hearth::serve {

// Used on the server's thread, unless a function says otherwise.
class ModelHost {
 public:
  // What a request does once its model is there. Throws RequestError and api::Error.
  using UseFn = std::function<AnswerFn(ModelService& model)>;

  virtual ~ModelHost() = default;

  // Finds the model that a request means; `asked`: its "model", empty where it names none. Loads it
  // where it must, while the request waits. Any thread. Throws RequestError, and so does the
  // answer.
  virtual AnswerFn With(const std::string& asked, UseFn use) = 0;
  // The same for questions about a model's state, for which none is loaded: 404 where it is not.
  virtual AnswerFn WithLoaded(const std::string& asked, UseFn use) = 0;

  virtual std::vector<ModelEntry> List() = 0;
  // Throws RequestError(kNotFound) for a name that no model has.
  virtual ModelEntry Find(const std::string& name) = 0;
  virtual ModelsState State() const = 0;

  // Whether no model works for anybody, and none is being loaded or unloaded.
  virtual bool is_idle() const = 0;
  // Loads what must be there before clients are, then calls done: with null, or with what went
  // wrong.
  virtual void Prepare(const std::function<void(const RequestError* failure)>& done) = 0;
  // Does what time alone asks for; whether it is to be called again, in a while.
  virtual bool Tidy() { return false; }
  // The server is to end: nothing is loaded any more unless somebody waits for it.
  virtual void Stop() {}
  // At the end, after the last request: saves what is to be kept, until then.
  virtual void Close(std::chrono::steady_clock::time_point until) = 0;
};

}  // namespace hearth::serve
