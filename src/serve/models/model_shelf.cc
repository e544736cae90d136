#include "serve/models/model_shelf.h"

#include <algorithm>
#include <utility>

namespace hearth::serve {

ShelvedModel& ModelShelf::Of(const ModelKey& key) {
  ShelvedModel& model = models_[key.name];
  if (model.version != key.version) {
    model.version = key.version;
    model.bytes.reset();
    model.failure.reset();
  }
  return model;
}

void ModelShelf::Use(ShelvedModel& model, ShelvedModel::Clock::time_point now) {
  model.last_use = ++num_uses_;
  model.last_use_time = now;
}

std::vector<std::string> ModelShelf::Loaded() const {
  std::vector<std::string> names;
  for (const auto& [name, model] : models_) {
    if (model.resident) names.push_back(name);
  }
  return names;
}

Resident* ModelShelf::FindLoaded(const std::string& name) const {
  const auto at = models_.find(name);
  return at == models_.end() ? nullptr : at->second.resident.get();
}

std::vector<std::shared_ptr<Resident>> ModelShelf::TakeAll() {
  std::vector<std::shared_ptr<Resident>> all;
  for (auto& [name, model] : models_) {
    if (model.resident) all.push_back(std::move(model.resident));
  }
  return all;
}

uint64_t ModelShelf::used_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, model] : models_) sum += model.held_bytes;
  return sum;
}

std::vector<std::string> ModelShelf::LeaversFor(const std::string& name,
                                                uint64_t coming_bytes) const {
  const ShelvedModel& wanted = At(name);
  if (wanted.resident) return {name};  // what is out of date leaves first
  if (!wanted.bytes) return {};
  std::vector<std::pair<std::string, const ShelvedModel*>> loaded;
  for (const auto& [other, model] : models_) {
    if (model.resident) loaded.emplace_back(other, &model);
  }
  std::sort(loaded.begin(), loaded.end(), [](const auto& a, const auto& b) {
    const bool a_works = !a.second->resident->is_at_rest();
    const bool b_works = !b.second->resident->is_at_rest();
    return a_works != b_works ? b_works : a.second->last_use < b.second->last_use;
  });
  uint64_t room = budget_bytes_ - used_bytes() + coming_bytes;
  std::vector<std::string> leavers;
  for (const auto& [other, model] : loaded) {
    if (room >= *wanted.bytes) break;
    leavers.push_back(other);
    room += model->held_bytes;
  }
  return leavers;
}

}  // namespace hearth::serve
