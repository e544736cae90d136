// A repository of models on a hub that speaks Hugging Face's API, and how its files are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/digest.h"
#include "hub/http.h"
#include "hub/model_names.h"

namespace hearth::hub {

struct RepositoryFile {
  std::string path;  // IsSafePath
  uint64_t bytes = 0;
  DigestKind digest_kind = DigestKind::kSha256;
  std::string digest;  // lower-case hexadecimal
};

struct Repository {
  std::string name;    // OWNER/REPO
  std::string commit;  // whose files these are
  bool is_gated = false;
  std::vector<RepositoryFile> files;  // GGUF files alone

  std::vector<ModelFiles> Models() const;
  // Throws Error(kNotFound).
  const RepositoryFile& File(const std::string& path) const;
  // Returns the files of a model by part. Throws Error(kCorrupt) where one is missing.
  std::vector<RepositoryFile> FilesOf(const ModelFiles& model) const;
};

// Reads what the API answers about a repository. The answer is taken for hostile: throws
// Error(kCorrupt), naming the place, where it is not as it must be or names unsafe paths.
Repository ParseRepository(const std::string& json, const std::string& name);

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // http or https, without a '/' at the end
  HttpOptions http;
};

// Not thread-safe.
class Hub {
 public:
  // Throws Error(kInvalidArgument) for an endpoint or token that cannot be used, and what
  // HttpClient throws.
  explicit Hub(HubSettings settings);

  const std::string& endpoint() const { return settings_.endpoint; }

  // Throws Error(kNotFound, kIo, ...): no connection, no such repository, no right to read it, each
  // with what to do.
  Repository List(const std::string& repository);

  // One attempt to read a file from range.begin on. The answer may be of a failure.
  HttpAnswer Read(const Repository& repository, const RepositoryFile& file,
                  HttpRequest::Range range, const HttpSink& sink);

  // Whether the same attempt may work later.
  static bool MayRetry(const HttpAnswer& answer);
  // Returns the error, to be thrown, that an answer which is not done stands for. `file`: empty
  // where the API was asked.
  Error RefusalOf(const Repository& repository, const std::string& file,
                  const HttpAnswer& answer) const;

 private:
  HubSettings settings_;
  HttpClient http_;
};

}  // namespace hearth::hub
