// A loaded model, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>
#include <sys/types.h>

#include <cstdint>
#include <hearth/hearth.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stream.h"

namespace hearth::python {

// All functions with the interpreter's lock, which they give away while they compute; the lock
// guards model_. A forked child can only forget it.
class NativeModel {
 public:
  // progress: as LoadModel takes it.
  NativeModel(const std::string& path, api::LoadOptions options, const pybind11::object& progress);
  ~NativeModel();
  NativeModel(const NativeModel&) = delete;
  NativeModel& operator=(const NativeModel&) = delete;

  // Ends what is under way and frees the model; again without effect.
  void Close();
  bool is_closed() const { return model_ == nullptr; }

  // One sentence each, since the last call; also of a closed model.
  pybind11::list TakeWarnings() const;
  pybind11::dict Info() const;
  pybind11::dict Stats() const;
  // Pairs of a path and a default scale.
  pybind11::list Adapters() const;
  void SetAdapters(const std::map<int64_t, float>& scales) const;
  std::vector<api::TokenId> Tokenize(const std::string& text, bool as_prompt) const;
  pybind11::bytes TokenBytes(api::TokenId id) const;
  std::vector<api::TokenId> TokenizeForEmbedding(const std::string& text) const;
  std::string Detokenize(const std::vector<api::TokenId>& tokens) const;
  api::ChatPrompt EncodeChat(const std::vector<api::ChatMessage>& messages,
                             const api::ToolOptions& tools, const std::string& variables) const;
  // tells_progress: the stream tells of the prompt too.
  std::unique_ptr<Stream> Start(api::GenerateRequest request, const AnswerForm& form,
                                bool tells_progress) const;
  std::vector<std::vector<float>> Embed(const std::vector<std::vector<api::TokenId>>& texts) const;

 private:
  // Throws api::Error where it is closed, or in a forked child.
  std::shared_ptr<api::Model> Get() const;

  struct Warnings {
    std::mutex mutex;
    std::vector<std::string> sentences;  // guarded by mutex
  };
  const std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();
  std::shared_ptr<api::Model> model_;
  const pid_t owner_;
};

void BindModel(pybind11::module_& module);

}  // namespace hearth::python
