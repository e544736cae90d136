// The host of a server that loads models when they are asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/models/model_host.h"
#include "serve/models/model_pool.h"
#include "serve/models/model_source.h"

namespace hearth::serve {

class SeveralModels : public ModelHost, private ModelLoader {
 public:
  // load: runs functions on the loading thread, in order. tell: is told what is loaded and
  // unloaded, as a sentence, on any thread; may be empty. The source must outlive it.
  SeveralModels(ModelSource& source, SharingOptions options, const ServiceContext& shared,
                PostFn load, std::function<void(const std::string& sentence)> tell);

  AnswerFn With(const std::string& asked, UseFn use) override;
  AnswerFn WithLoaded(const std::string& asked, UseFn use) override;
  std::vector<ModelEntry> List() override;
  ModelEntry Find(const std::string& name) override;
  ModelsState State() const override;
  bool is_idle() const override;
  void Prepare(const std::function<void(const RequestError* failure)>& done) override;
  bool Tidy() override {
    pool_.UnloadRested();
    return options_.unload_after.has_value();
  }
  void Stop() override;
  void Close(std::chrono::steady_clock::time_point until) override;

 private:
  class ServedModel;

  uint64_t Measure(const ModelKey& key) override;
  std::shared_ptr<Resident> Load(const ModelKey& key, uint64_t bytes,
                                 const std::atomic<bool>& cancel) override;

  // Throws RequestError where no model is meant, or not one alone.
  ModelKey KeyOf(const std::string& asked);
  ModelKey Named(const std::string& asked);
  ServedModel* FindLoaded(const std::string& name) const;
  ModelEntry EntryOf(const std::string& name) const;
  std::vector<std::string> Names();

  ModelSource& source_;
  const SharingOptions options_;
  const ServiceContext shared_;
  const int64_t created_;
  const std::function<void(const std::string&)> tell_;
  ModelPool pool_;
  ModelPool::Ticket first_ticket_ = 0;  // of the model that is loaded before the first client
};

}  // namespace hearth::serve
