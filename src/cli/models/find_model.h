// What a command's MODEL means: a file, a model that `hearth get` fetched, or one on the hub.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "format/gguf.h"
#include "hub/model_folder.h"
#include "hub/repository.h"

namespace hearth::cli {

// For help: what MODEL may be.
inline constexpr char kModelHelp[] =
    "model file (GGUF; any file of a split set), folder as published on Hugging Face (config.json "
    "and safetensors), or the name of a model that 'hearth list' shows";

// Returns the path of the first file of what `name` means: a path that exists, else a model of
// ModelsFolder. Throws Error(kNotFound) where there is neither, Error(kInvalidArgument) where
// several models may be meant.
std::string FindModel(const std::string& name);

// Returns the name on the hub of what is neither a file nor a model that is here; nothing where it
// is one of these, or no name that a hub could know.
std::optional<hub::ModelName> FindRemoteName(const std::string& name);

// Returns the only model of `models` that `name` means, else throws as FindModel does.
const hub::LocalModel& FindOne(const std::vector<hub::LocalModel>& models, const std::string& name,
                               bool prefers);

// ModelsFolder. Throws Error(kNotFound) where the environment names none.
std::string RequireModelsFolder();

// The hub that the environment names, and how it is asked: HF_ENDPOINT, HF_TOKEN or the token that
// Hugging Face's own tools have saved, CURL_CA_BUNDLE or SSL_CERT_FILE. Throws Error(kIo) for a
// token file that cannot be read.
hub::HubSettings HubOfEnvironment(const std::atomic<bool>* cancel);

// A model on the hub, of which the header is read.
class RemoteModel {
 public:
  // Says on a terminal which it reads. Throws what hub::Hub and hub::OpenRemoteHeader throw.
  explicit RemoteModel(const hub::ModelName& name,
                       ForeignTensors foreign = ForeignTensors::kRefuse);

  const std::string& name() const { return name_; }  // OWNER/REPO:LABEL
  GgufFile& file() { return *file_; }
  // Writes files with these headers into a folder (hub/remote_header.h); the path of the first.
  std::string Save(const std::string& folder) const;

 private:
  hub::Hub hub_;
  const hub::Repository repository_;
  const hub::ModelFiles files_;
  std::string name_;
  std::optional<GgufFile> file_;
};

// The header of a model on the hub as a file, until this is destroyed. Another process reads it:
// what is loaded for that would count as memory that this program needs to run the model.
class SavedHeader {
 public:
  explicit SavedHeader(const hub::ModelName& name);
  ~SavedHeader();
  SavedHeader(const SavedHeader&) = delete;
  SavedHeader& operator=(const SavedHeader&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace hearth::cli
