#include "cli/options/command_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

// "-00002-of-00003.gguf" and what of it differs within a set.
constexpr std::string_view kPartPattern = "-00000-of-00000.gguf";
constexpr size_t kPartDigits = 5;

// The name without the number that tells the parts of a split set apart.
std::string SetName(std::string name) {
  if (name.size() < kPartPattern.size()) return name;
  const size_t begin = name.size() - kPartPattern.size();
  for (size_t i = 0; i < kPartPattern.size(); ++i) {
    const char c = name[begin + i];
    const bool is_digit = c >= '0' && c <= '9';
    if (kPartPattern[i] == '0' ? !is_digit : c != kPartPattern[i]) return name;
  }
  return name.replace(begin + 1, kPartDigits, kPartDigits, '0');
}

// The folder without links and dots; the name of the file, which may be a link itself, as it is.
fs::path PlainPath(const fs::path& path) {
  std::error_code failed;
  fs::path folder = fs::weakly_canonical(fs::absolute(path, failed).parent_path(), failed);
  return folder / SetName(path.filename().string());
}

bool AreSame(const std::string& a, const std::string& b) {
  std::error_code missing;
  if (fs::equivalent(a, b, missing)) return true;
  const fs::path target = fs::weakly_canonical(a, missing);
  return PlainPath(a) == PlainPath(b) || (!missing && target == fs::weakly_canonical(b, missing));
}

// Whether `path` is what a model folder is read from.
bool IsFileOfFolder(const fs::path& path, const std::string& folder) {
  std::error_code missing;
  const fs::path kind = path.extension();
  return (kind == ".json" || kind == ".safetensors") && fs::exists(path, missing) &&
         fs::equivalent(fs::absolute(path, missing).parent_path(), folder, missing);
}

// Devices take what is written, and nothing is lost; folders are refused where they are written.
bool IsReplaced(const std::string& path) {
  std::error_code missing;
  const fs::file_status status = fs::status(path, missing);
  return !path.empty() && (!fs::exists(status) || fs::is_regular_file(status));
}

}  // namespace

void CheckFiles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    if (!IsReplaced(output.path)) continue;
    for (const NamedFile& input : inputs) {
      if (input.path.empty()) continue;
      if (!AreSame(output.path, input.path) && !IsFileOfFolder(output.path, input.path)) continue;
      throw UsageError(fmt::format("{}: '{}' is read as {} and would be replaced", output.option,
                                   Printable(output.path), input.option));
    }
    const auto other =
        std::find_if(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const NamedFile& before) {
                       return !before.path.empty() && AreSame(before.path, output.path);
                     });
    if (other == outputs.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    throw UsageError(fmt::format("{} and {} would both write '{}'", other->option, output.option,
                                 Printable(output.path)));
  }
}

std::string PathUnlessName(const std::string& name_or_path) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  return is_path ? name_or_path : "";
}

}  // namespace hearth::cli
