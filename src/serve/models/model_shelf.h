// The models that a server knows of: which are in memory, what they take of its budget, and who
// leaves first.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/request_error.h"

namespace hearth::serve {

// A model in memory. Destroyed on the loading thread, once it is at rest.
class Resident {
 public:
  virtual ~Resident() = default;
  // Whether no request uses it.
  virtual bool is_at_rest() const = 0;
};

// A model in a folder. What was loaded of another version is out of date.
struct ModelKey {
  std::string name;
  std::string version;  // another one when its files have changed

  bool operator==(const ModelKey&) const = default;
};

// What is known of a model.
struct ShelvedModel {
  using Clock = std::chrono::steady_clock;

  // That requests ask for, what it will take (nothing: not measured yet), and why it can never be
  // loaded.
  std::string version;
  std::optional<uint64_t> bytes;
  std::optional<RequestError> failure;
  // What is in memory: not there while it is loading or unloading, when it takes held_bytes too.
  std::shared_ptr<Resident> resident;
  std::string loaded_version;
  uint64_t held_bytes = 0;
  bool is_leaving = false;  // takes no new requests: another model needs its room
  uint64_t last_use = 0;    // counts uses of all models
  Clock::time_point last_use_time;

  bool is_current() const { return resident && loaded_version == version; }
  bool is_ready() const { return is_current() && !is_leaving; }
};

// One thread.
class ModelShelf {
 public:
  explicit ModelShelf(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // Returns the model, of this version from now on.
  ShelvedModel& Of(const ModelKey& key);
  // Of a name that Of was called with.
  ShelvedModel& At(const std::string& name) { return models_.at(name); }
  const ShelvedModel& At(const std::string& name) const { return models_.at(name); }
  bool Has(const std::string& name) const { return models_.contains(name); }
  std::map<std::string, ShelvedModel>& all() { return models_; }

  void Use(ShelvedModel& model, ShelvedModel::Clock::time_point now);

  // Names of those in memory.
  std::vector<std::string> Loaded() const;
  // Null where it is not in memory.
  Resident* FindLoaded(const std::string& name) const;
  // At the end: all that is in memory.
  std::vector<std::shared_ptr<Resident>> TakeAll();

  uint64_t budget_bytes() const { return budget_bytes_; }
  // What is loaded, loading and unloading takes of the budget.
  uint64_t used_bytes() const;
  // The models that must leave before `name` can be loaded, in order: those at rest, the one that
  // was used longest ago first; then those in use, likewise. coming_bytes: that others give back
  // already.
  std::vector<std::string> LeaversFor(const std::string& name, uint64_t coming_bytes) const;

 private:
  const uint64_t budget_bytes_;
  std::map<std::string, ShelvedModel> models_;
  uint64_t num_uses_ = 0;
};

}  // namespace hearth::serve
