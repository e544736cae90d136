// A loaded model, as Python sees it.
#pragma once

#include <pybind11/pybind11.h>
#include <sys/types.h>

#include <cstdint>
#include <hearth/hearth.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stream.h"

namespace hearth::python {

// All functions with the interpreter's lock, which they give away while they compute; the lock
// guards model_. A forked child can only forget it.
class NativeModel {
 public:
  NativeModel(const std::string& path, const api::LoadOptions& options);
  ~NativeModel();
  NativeModel(const NativeModel&) = delete;
  NativeModel& operator=(const NativeModel&) = delete;

  // Ends what is under way and frees the model; again without effect.
  void Close();
  bool is_closed() const { return model_ == nullptr; }

  pybind11::dict Info() const;
  pybind11::dict Stats() const;
  std::vector<api::TokenId> Tokenize(const std::string& text, bool as_prompt) const;
  pybind11::bytes TokenBytes(api::TokenId id) const;
  std::vector<api::TokenId> TokenizeForEmbedding(const std::string& text) const;
  std::string Detokenize(const std::vector<api::TokenId>& tokens) const;
  // (tokens, stop texts)
  std::pair<std::vector<api::TokenId>, std::vector<std::string>> EncodeChat(
      const std::vector<std::pair<std::string, std::string>>& messages) const;
  std::unique_ptr<Stream> Start(api::GenerateRequest request) const;
  std::vector<std::vector<float>> Embed(const std::vector<std::vector<api::TokenId>>& texts) const;

 private:
  // Throws api::Error where it is closed, or in a forked child.
  std::shared_ptr<api::Model> Get() const;

  std::shared_ptr<api::Model> model_;
  const pid_t owner_;
};

void BindModel(pybind11::module_& module);

}  // namespace hearth::python
