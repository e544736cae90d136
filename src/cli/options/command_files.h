// The files that a command reads and writes: none that it writes may be another of them.
#pragma once

#include <string>
#include <vector>

namespace hearth::cli {

// A file, and the option that names it; an empty path where the option was not given.
struct NamedFile {
  std::string option;
  std::string path;
};

// Throws UsageError where writing an output would replace an input or another output, whatever
// their paths are spelled like. A model's path stands for the whole split set that it is a part of,
// and a model folder for the weights and settings in it. For the start of a command.
void CheckFiles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

// What names a shape or a device where it is no file.
std::string PathUnlessName(const std::string& name_or_path);

}  // namespace hearth::cli
