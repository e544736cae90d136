#include "format/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "format/foreign_file.h"
#include "format/gguf_parse.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;            // as Linux follows
constexpr int kMostFilesOfFolder = 4096;  // that are looked into

// The ending of the name of part `index` (from 0) of a set: "-00001-of-00003.gguf".
std::string PartSuffix(uint64_t index, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// The path, what it links to, what that links to, ...
std::vector<std::string> LinkChain(const std::string& path) {
  std::vector<std::string> chain = {path};
  std::error_code failed;
  for (int i = 0; i < kMostLinks; ++i) {
    const fs::path target = fs::read_symlink(chain.back(), failed);
    if (failed) break;
    chain.push_back((fs::path(chain.back()).parent_path() / target).string());
  }
  return chain;
}

// What the names of a set have in common; nothing where `path` does not end as this part does.
std::optional<std::string> StemOf(const std::string& path, uint64_t index, uint64_t count) {
  const std::string suffix = PartSuffix(index, count);
  if (!path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

bool Exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

// The number (from 0) of the part that a file is of a set of `count` files; nothing where it is
// none.
std::optional<uint64_t> PartNumberOf(const std::string& path, uint64_t count) {
  try {
    const std::unique_ptr<BlockReader> reader = OpenFileReader(path);
    if (!ReadHead(*reader).starts_with("GGUF")) return std::nullopt;
    const GgufPart part = ParseGgufPart(*reader);
    const std::optional<uint64_t> number = part.metadata.FindUint("split.no");
    if (part.metadata.FindUint("split.count") != count || !number || *number >= count) {
      return std::nullopt;
    }
    return number;
  } catch (const Error&) {
    return std::nullopt;  // another program's, or broken: not what is looked for
  }
}

// Looks into all files of a folder. Entry i of the result are the files that say they are part i.
std::vector<std::vector<std::string>> PartsInFolder(const fs::path& folder, uint64_t count) {
  std::vector<std::vector<std::string>> found(static_cast<size_t>(count));
  std::error_code failed;
  int seen = 0;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, failed), end;
       !failed && it != end && seen < kMostFilesOfFolder; it.increment(failed), ++seen) {
    std::error_code missing;
    if (!it->is_regular_file(missing)) continue;
    const std::string path = (folder / it->path().filename()).string();
    if (const auto number = PartNumberOf(path, count)) {
      found[static_cast<size_t>(*number)].push_back(path);
    }
  }
  return found;
}

// One file for each part, where that is certain. `path` is part `index`, whatever else says so.
std::optional<std::vector<std::string>> ChooseParts(std::vector<std::vector<std::string>> found,
                                                    const std::string& path, uint64_t index) {
  found[static_cast<size_t>(index)] = {path};
  std::vector<std::string> parts;
  for (std::vector<std::string>& files : found) {
    if (files.empty()) return std::nullopt;
    if (files.size() > 1) {
      std::sort(files.begin(), files.end());
      throw Error(
          ErrorCode::kUnsupported, path,
          fmt::format("is one of {} files of a split model, and both '{}' and '{}' could be "
                      "another: name the files of the set NAME{} and so on",
                      found.size(), Printable(files[0]), Printable(files[1]),
                      PartSuffix(0, found.size())));
    }
    parts.push_back(files.front());
  }
  return parts;
}

}  // namespace

std::vector<std::string> FindSplitFiles(const std::string& path, uint64_t index, uint64_t count) {
  const std::vector<std::string> chain = LinkChain(path);
  for (const std::string& link : chain) {
    const std::optional<std::string> stem = StemOf(link, index, count);
    if (!stem) continue;
    std::vector<std::string> parts;
    for (uint64_t i = 0; i < count; ++i) {
      parts.push_back(i == index && link == path ? path : *stem + PartSuffix(i, count));
      if (Exists(parts.back())) continue;
      throw Error(ErrorCode::kNotFound, parts.back(),
                  fmt::format("part {} of {} of the split model is missing", i + 1, count));
    }
    return parts;
  }
  std::set<fs::path> folders;
  for (const std::string& link : chain) {
    const fs::path folder = fs::path(link).parent_path();
    if (!folders.insert(folder).second) continue;
    if (auto parts = ChooseParts(PartsInFolder(folder, count), link, index)) return *parts;
  }
  throw Error(
      ErrorCode::kNotFound, path,
      fmt::format("is part {} of {} of a split model, and the other parts are not in the same "
                  "folder: put them there",
                  index + 1, count));
}

}  // namespace hearth
