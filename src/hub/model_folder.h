// The models that are on this machine: FOLDER/OWNER/REPO/..., where `hearth get` puts them, and
// GGUF files that somebody has put beside them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/model_names.h"

namespace hearth::hub {

struct LocalModel {
  std::string repository;             // OWNER/REPO; empty for a file that lies in no such folder
  ModelFiles files;                   // paths are below the repository's folder
  std::vector<std::string> paths;     // of files that are whole, by part; as the folder's path is
  std::vector<std::string> partials;  // of downloads that broke off
  std::vector<std::string> updates;   // the same, of what is to replace a whole file
  uint64_t bytes = 0;                 // of all of them

  // OWNER/REPO:LABEL, or the file's path in the folder without ".gguf".
  std::string Name() const;
  bool is_whole() const { return partials.empty() && paths.size() == files.num_parts; }
};

// Returns the models of a folder by name; none where the folder is missing. Throws Error(kIo) where
// it cannot be read.
std::vector<LocalModel> ListModels(const std::string& folder);

// Returns those that `name` may mean: OWNER/REPO[:QUANT], the repository's name alone, its
// beginning up to a '-', '_' or '.', or the file's name without ".gguf"; capitals do not matter.
// Only the closest kind of match counts. Where one repository has several models and nothing says
// which, ChooseModel's preference does if `prefers`.
std::vector<const LocalModel*> FindModels(const std::vector<LocalModel>& models,
                                          const std::string& name, bool prefers);

// Removes the files of a model, their hashes, and folders that are empty then up to `folder`.
// Throws Error(kIo), also where another process fetches it.
void RemoveModel(const std::string& folder, const LocalModel& model);

}  // namespace hearth::hub
