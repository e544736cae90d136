#include "serve/models/one_model.h"

#include "serve/models/model_names.h"

namespace hearth::serve {

OneModel::OneModel(api::Model& model, const std::string& name, bool is_strict,
                   const ServiceContext& shared)
    : service_(model, name, shared), is_strict_(is_strict) {}

AnswerFn OneModel::With(const std::string& asked, UseFn use) {
  // Where it is not strict, the model answers whatever name a client was set up with.
  if (is_strict_ && !asked.empty() && asked != service_.name()) {
    throw NoSuchModel(asked, {service_.name()});
  }
  return use(service_);
}

ModelEntry OneModel::Entry() const {
  return {.name = service_.name(),
          .created = service_.created(),
          .context = service_.model().info().context,
          .is_loaded = true};
}

ModelEntry OneModel::Find(const std::string& name) {
  if (name != service_.name()) throw NoSuchModel(name, {service_.name()});
  return Entry();
}

ModelsState OneModel::State() const {
  const api::ModelInfo& info = service_.model().info();
  ModelsState state;
  state.models.push_back({.label = "", .stats = service_.model().stats()});
  state.memory_limit_bytes = info.memory_limit_bytes;
  state.resident_bytes = state.models.front().stats.resident_bytes;
  return state;
}

}  // namespace hearth::serve
