// The host of a server with one model, which is there from its start to its end.
#pragma once

#include <string>
#include <vector>

#include "serve/models/model_host.h"

namespace hearth::serve {

class OneModel : public ModelHost {
 public:
  // name: what clients call it. is_strict: requests of other models are refused, not answered by
  // this one. The model must outlive it.
  OneModel(api::Model& model, const std::string& name, bool is_strict,
           const ServiceContext& shared);

  AnswerFn With(const std::string& asked, UseFn use) override;
  AnswerFn WithLoaded(const std::string& asked, UseFn use) override { return With(asked, use); }
  std::vector<ModelEntry> List() override { return {Entry()}; }
  ModelEntry Find(const std::string& name) override;
  ModelsState State() const override;
  bool is_idle() const override { return service_.is_at_rest(); }
  void Prepare(const std::function<void(const RequestError* failure)>& done) override {
    done(nullptr);
  }
  void Close(std::chrono::steady_clock::time_point) override {}  // its owner does

 private:
  ModelEntry Entry() const;

  ModelService service_;
  const bool is_strict_;
};

}  // namespace hearth::serve
