// The models that a server may load, and how. Whoever starts the server knows folders and engines.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/models/model_pool.h"

namespace hearth::serve {

// All functions from any thread. They throw api::Error.
class ModelSource {
 public:
  virtual ~ModelSource() = default;

  // Returns the models there are now.
  virtual std::vector<ModelKey> List() = 0;
  // Returns those that `asked` may mean, of all there are now: one where that is clear.
  virtual std::vector<ModelKey> Find(const std::string& asked) = 0;
  // Returns what a model will take beside the program. Throws where it can never be loaded.
  virtual uint64_t Measure(const ModelKey& key) = 0;
  // Loads a model, which takes at most `bytes` beside the program. Throws kCancelled soon after
  // `cancel` was set.
  virtual std::unique_ptr<api::Model> Load(const ModelKey& key, uint64_t bytes,
                                           const std::atomic<bool>& cancel) = 0;
};

// How a server shares its memory among models.
struct SharingOptions {
  uint64_t memory_bytes = 0;   // the limit
  uint64_t program_bytes = 0;  // of it, what no model takes
  int queue = 64;              // requests that may wait for their model
  // The model of requests that name none while not exactly one is loaded, which is loaded before
  // the first client is served; empty: none.
  std::string default_model;
  std::optional<std::chrono::seconds> unload_after;  // as ModelPool::Options
  std::chrono::milliseconds save_time{0};            // for sessions of a model that is unloaded
};

}  // namespace hearth::serve
