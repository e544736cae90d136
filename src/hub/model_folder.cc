#include "hub/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "hub/fetch.h"
#include "hub/partial_file.h"

namespace hearth::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDepth = 6;  // of folders: a link may lead in a circle

std::string WithoutGguf(std::string_view path) {
  constexpr std::string_view kEnding = ".gguf";
  if (path.ends_with(kEnding)) path.remove_suffix(kEnding.size());
  return std::string(path);
}

// What lies in a repository's folder, or in the folder of models itself.
struct FoundFiles {
  std::set<std::string> paths;  // of models, whole or not, below that folder
  std::map<std::string, std::vector<std::string>> partials;  // by the path they will have
  std::map<std::string, std::string> whole;                  // the same, and where they are
};

// OWNER/REPO of a path in the folder of models, and what remains of it.
std::pair<std::string, std::string> SplitPath(const fs::path& relative) {
  std::vector<std::string> parts;
  for (const fs::path& part : relative) parts.push_back(part.string());
  if (parts.size() < 3) return {"", relative.generic_string()};
  const std::string repository = parts[0] + "/" + parts[1];
  return {repository, relative.generic_string().substr(repository.size() + 1)};
}

void AddFound(const fs::path& root, const fs::path& path,
              std::map<std::string, FoundFiles>& by_repository) {
  const std::string full = path.string();
  const std::string future(FileOfPartial(full));
  const fs::path named = future.empty() ? path : fs::path(future);
  if (named.extension() != ".gguf") return;
  auto [repository, below] = SplitPath(named.lexically_relative(root));
  FoundFiles& found = by_repository[repository];
  found.paths.insert(below);
  if (future.empty()) {
    found.whole[below] = full;
  } else {
    found.partials[below].push_back(full);
  }
}

LocalModel ModelOf(const std::string& repository, ModelFiles files, const FoundFiles& found) {
  LocalModel model{.repository = repository, .files = std::move(files)};
  std::error_code missing;
  const auto add = [&](const std::string& path, std::vector<std::string>& list) {
    list.push_back(path);
    const auto bytes = fs::file_size(path, missing);
    if (!missing) model.bytes += bytes;
  };
  for (const std::string& path : model.files.paths) {
    const auto whole = found.whole.find(path);
    const auto partials = found.partials.find(path);
    if (whole != found.whole.end()) add(whole->second, model.paths);
    if (partials == found.partials.end()) continue;
    auto& list = whole != found.whole.end() ? model.updates : model.partials;
    for (const std::string& partial : partials->second) add(partial, list);
  }
  return model;
}

// How well a model fits a name without an owner; 0: best, nothing: not at all.
std::optional<int> RankOf(const LocalModel& model, std::string_view name) {
  const std::string file = WithoutGguf(fs::path(model.files.paths.front()).filename().string());
  if (model.repository.empty()) {
    const bool is_named = IsSameName(model.Name(), name) || IsSameName(file, name);
    return is_named ? std::optional(0) : std::nullopt;
  }
  const std::string_view repo =
      std::string_view(model.repository).substr(model.repository.find('/') + 1);
  if (IsSameName(repo, name) || IsSameName(repo, std::string(name) + "-GGUF")) return 1;
  if (IsSameName(file, name)) return 2;
  const bool begins = repo.size() > name.size() && IsSameName(repo.substr(0, name.size()), name) &&
                      std::string_view("-_.").find(repo[name.size()]) != std::string_view::npos;
  return begins ? std::optional(3) : std::nullopt;
}

void RemoveFile(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw Error(ErrorCode::kIo, path, "cannot be removed: " + error.message());
}

// Those that `path` lay in, up to `root`, which stays.
void RemoveEmptyFolders(const fs::path& root, const fs::path& path) {
  fs::path below = path.lexically_relative(root).parent_path();
  for (; !below.empty(); below = below.parent_path()) {
    std::error_code in_use;
    fs::remove(root / below, in_use);
    if (in_use) return;
  }
}

}  // namespace

std::string LocalModel::Name() const {
  return repository.empty() ? WithoutGguf(files.label) : repository + ":" + files.label;
}

std::vector<LocalModel> ListModels(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return {};
  std::map<std::string, FoundFiles> by_repository;
  fs::recursive_directory_iterator at(folder,
                                      fs::directory_options::follow_directory_symlink |
                                          fs::directory_options::skip_permission_denied,
                                      error);
  while (!error && at != fs::recursive_directory_iterator()) {
    std::error_code missing;
    const bool is_hidden = at->path().filename().string().starts_with('.');
    if (is_hidden || at.depth() >= kMostDepth) at.disable_recursion_pending();
    if (!is_hidden && at->is_regular_file(missing)) AddFound(folder, at->path(), by_repository);
    at.increment(error);
  }
  if (error) throw Error(ErrorCode::kIo, folder, "cannot be read: " + error.message());
  std::vector<LocalModel> models;
  for (const auto& [repository, found] : by_repository) {
    for (ModelFiles& files : GroupModelFiles({found.paths.begin(), found.paths.end()})) {
      if (repository.empty()) files.label = files.paths.front();
      models.push_back(ModelOf(repository, std::move(files), found));
    }
  }
  return models;
}

std::vector<const LocalModel*> FindModels(const std::vector<LocalModel>& models,
                                          const std::string& name, bool prefers) {
  const size_t colon = name.find(':');
  const std::string repo = name.substr(0, colon);
  const std::string choice = colon == std::string::npos ? "" : name.substr(colon + 1);
  std::map<int, std::vector<const LocalModel*>> by_rank;
  for (const LocalModel& model : models) {
    if (!choice.empty() && !IsSameName(choice, model.files.label) &&
        !IsSameName(choice, model.files.quant) &&
        std::find(model.files.paths.begin(), model.files.paths.end(), choice) ==
            model.files.paths.end()) {
      continue;
    }
    if (IsSameName(model.repository, repo) && !repo.empty()) {
      by_rank[0].push_back(&model);
    } else if (const auto rank = RankOf(model, repo)) {
      by_rank[*rank].push_back(&model);
    }
  }
  if (by_rank.empty()) return {};
  std::vector<const LocalModel*> found = by_rank.begin()->second;
  const bool is_one_repository = std::all_of(
      found.begin(), found.end(),
      [&](const LocalModel* model) { return model->repository == found.front()->repository; });
  if (found.size() == 1 || !prefers || !choice.empty() || !is_one_repository) return found;
  for (const std::string& quant : PreferredQuants()) {
    std::vector<const LocalModel*> preferred;
    for (const LocalModel* model : found) {
      if (model->files.quant == quant && !model->files.is_helper) preferred.push_back(model);
    }
    if (preferred.size() == 1) return preferred;
  }
  return found;
}

void RemoveModel(const std::string& folder, const LocalModel& model) {
  for (const auto* paths : {&model.partials, &model.updates}) {
    for (const std::string& path : *paths) {
      if (PartialFile::TryRemove(path)) continue;
      throw Error(ErrorCode::kIo, model.Name(), "another process fetches it");
    }
  }
  for (const std::string& path : model.paths) {
    RemoveFile(path);
    RemoveFile(path + ".sha256");
  }
  for (const auto* paths : {&model.paths, &model.partials}) {
    for (const std::string& path : *paths) RemoveEmptyFolders(folder, path);
  }
}

}  // namespace hearth::hub
