// Names of models as the hub has them: OWNER/REPO[:QUANT], and which files of a repository are
// which model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::hub {

// OWNER/REPO, and which of its models: a quantization such as Q4_K_M, or the name of a file.
struct ModelName {
  std::string repository;  // OWNER/REPO
  std::string choice;      // empty: none was made

  std::string Text() const { return choice.empty() ? repository : repository + ":" + choice; }
};

// Also reads addresses such as https://huggingface.co/OWNER/REPO/blob/main/FILE.gguf. Returns
// nothing where the text is no such name; a REPO that ends in .gguf is taken for a path.
std::optional<ModelName> ParseModelName(std::string_view text);

// Returns the quantization that a file's name or folder tells, in capitals: "Q4_K_M",
// "UD-Q4_K_XL", "F16"; empty where it tells none.
std::string QuantOf(std::string_view path);

// Whether nothing outside a folder can be meant by `path` inside it: it is relative, has no "."
// and "..", no control bytes, and parts that a file system and the names of partial downloads can
// take.
bool IsSafePath(std::string_view path);

// One model of a repository: a GGUF file, or all files of a split set.
struct ModelFiles {
  std::string label;  // what names it after OWNER/REPO: the quantization, or the file where others
                      // have the same
  std::string quant;  // empty: the name does not tell
  std::vector<std::string> paths;  // by part
  size_t num_parts = 1;            // that there must be
  bool is_helper = false;          // an image projector or the like, which cannot be run alone
};

// Groups the GGUF files among the paths, by name. Other files are left out.
std::vector<ModelFiles> GroupModelFiles(std::vector<std::string> paths);

// Returns the model that `name` means. Without a choice that is the only one, or else the first of
// PreferredQuants that is there once. Throws Error(kNotFound) where there is none,
// Error(kInvalidArgument) where there are several; both say what there is.
const ModelFiles& ChooseModel(const std::vector<ModelFiles>& models, const ModelName& name);

// What is taken where nobody chose: the usual trade of quality for size first, then its neighbours,
// then ever larger ones.
const std::vector<std::string>& PreferredQuants();

// Whether two names differ in capitals alone (ASCII).
bool IsSameName(std::string_view a, std::string_view b);

}  // namespace hearth::hub
