// Fetches a model of a hub into the folder of models.
//
// A file lies at FOLDER/OWNER/REPO/PATH, and its SHA-256 beside it in PATH.sha256, as sha256sum
// writes it. While it comes it is PATH.HASH.part, with the beginning of its hash: a file that has
// changed on the hub has another partial file, and begins anew. A partial file is locked (flock)
// by the process that writes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace hearth::hub {

struct FetchOptions {
  std::string folder;  // of models; made where it is missing
  // Bytes of all files of the model that are here, of all there are; what is being done to them
  // where it is not fetching.
  std::function<void(uint64_t done, uint64_t total, const std::string& note)> progress;
  std::function<void(const std::string& sentence)> notice;  // of what a user should know
  const std::atomic<bool>* cancel = nullptr;
  // How long it waits after each attempt in turn that brought no more than a MiB.
  std::vector<std::chrono::milliseconds> waits = {std::chrono::seconds(1), std::chrono::seconds(2),
                                                  std::chrono::seconds(4), std::chrono::seconds(8),
                                                  std::chrono::seconds(16)};
};

struct FetchedModel {
  std::vector<std::string> paths;  // by part; absolute where the folder is
  uint64_t bytes = 0;
  uint64_t fetched_bytes = 0;  // 0: all was here
};

// Fetches what is missing of a model, part by part. What is here and has the hub's hash stays.
// Throws Error: kIo where the hub or the disk fails, and then what has come stays and is continued
// by the next call; kCorrupt where what came has not the hub's hash, and then it is removed;
// kCancelled.
FetchedModel FetchModel(Hub& hub, const Repository& repository, const ModelFiles& model,
                        const FetchOptions& options);

// The file that a partial file will become; empty for another name.
std::string_view FileOfPartial(std::string_view path);

}  // namespace hearth::hub
