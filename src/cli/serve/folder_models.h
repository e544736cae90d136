// The models of a folder, for a server that loads them when they are asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/options/model_options.h"
#include "engine/load/engine_options.h"
#include "engine/session/session_root.h"
#include "hub/model_folder.h"
#include "serve/models/model_source.h"
#include "text/chat/chat_format.h"

namespace hearth::cli {

// How each model is loaded.
struct FolderSettings {
  ModelOptions model;          // of whatever model; memory_bytes: of all of them together
  uint64_t program_bytes = 0;  // of these, what no model takes
  int parallel = 1;
  int queue = 0;
  std::optional<ChatFormat> chat_format;
  std::optional<SessionRoot> sessions;  // nothing: none are kept
  bool verbose = false;                 // the kernels and the ledger are printed of each
};

// What a server takes of the limit beside its models, from what the program takes now.
uint64_t ProgramBytesOfServer();

// Any thread.
class FolderModels : public serve::ModelSource {
 public:
  // Throws Error(kNotFound) where there is no such folder.
  explicit FolderModels(std::string folder);
  void Use(FolderSettings settings) { settings_ = std::move(settings); }

  // Returns the name of the one that `model` means: as the list has it, or a file's path. Throws
  // Error(kNotFound).
  std::string NameOf(const std::string& model);

  std::vector<serve::ModelKey> List() override;
  std::vector<serve::ModelKey> Find(const std::string& asked) override;
  uint64_t Measure(const serve::ModelKey& key) override;
  std::unique_ptr<api::Model> Load(const serve::ModelKey& key, uint64_t bytes,
                                   const std::atomic<bool>& cancel) override;

 private:
  // These want mutex_.
  void Look();
  std::vector<serve::ModelKey> FindListed(const std::string& asked, bool as_listed) const;

  // The path of a model whose files are as they were. Throws Error(kNotFound).
  std::string PathOf(const serve::ModelKey& key);
  EngineOptions OptionsFor(const std::string& path, uint64_t own_bytes) const;
  void SayOnce(const Engine& engine, const serve::ModelKey& key);

  const std::string folder_;
  FolderSettings settings_;
  std::mutex mutex_;
  std::vector<hub::LocalModel> models_;        // that can be loaded; guarded by mutex_
  std::map<std::string, uint64_t> own_bytes_;  // of the program, by version; guarded by mutex_
  std::set<std::string> said_;                 // versions; guarded by mutex_
};

}  // namespace hearth::cli
