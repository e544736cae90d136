#include "hub/model_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/error.h"

namespace hearth::hub {
namespace {

constexpr std::string_view kGgufEnding = ".gguf";
constexpr size_t kMostNameBytes = 96;  // as the hub allows
constexpr size_t kMostChoiceBytes = 512;
constexpr size_t kMostPathBytes = 1024;
// A file system takes 255, and a partial download's name has more than the file's.
constexpr size_t kMostPartBytes = 200;
constexpr size_t kMostListed = 40;  // in a message

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char ToUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
bool IsLetterOrDigit(char c) { return IsDigit(c) || (ToUpper(c) >= 'A' && ToUpper(c) <= 'Z'); }

std::string Upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), ToUpper);
  return out;
}

std::string_view FileNameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsHubWord(std::string_view word) {
  const auto is_allowed = [](char c) {
    return IsLetterOrDigit(c) || c == '-' || c == '_' || c == '.';
  };
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !word.empty() && word.size() <= kMostNameBytes &&
         std::all_of(word.begin(), word.end(), is_allowed) && !is_edge(word.front()) &&
         !is_edge(word.back()) && word.find("..") == std::string_view::npos;
}

// Takes the next part of an address, up to a '/'.
std::string_view NextPart(std::string_view& rest) {
  const size_t slash = rest.find('/');
  const std::string_view part = rest.substr(0, slash);
  rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
  return part;
}

// What follows OWNER/REPO in an address of the hub: the file, where it names one.
std::string_view FileOfAddress(std::string_view rest) {
  rest = rest.substr(0, rest.find('?'));
  const std::string_view verb = NextPart(rest);
  if (verb != "blob" && verb != "resolve") return "";
  NextPart(rest);  // the branch
  return rest;
}

// "Q4_K_M", "IQ4_XS", "TQ1_0", "F16", "BF16", "MXFP4_MOE": a known beginning, then parts with '_'.
bool IsQuant(std::string_view word) {
  static constexpr std::string_view kWholes[] = {"F16",  "F32",  "F64",   "BF16",
                                                 "FP16", "FP32", "MXFP4", "NVFP4"};
  size_t begin = 0;
  for (const std::string_view whole : kWholes) {
    if (word.starts_with(whole)) begin = whole.size();
  }
  for (const std::string_view family : {"Q", "IQ", "TQ"}) {
    if (word.starts_with(family) && word.size() > family.size() && IsDigit(word[family.size()])) {
      begin = family.size() + 1;
    }
  }
  if (begin == 0) return false;
  bool after_dash = false;
  for (const char c : word.substr(begin)) {
    if (!after_dash && c != '_') return false;
    if (!IsLetterOrDigit(c) && c != '_') return false;
    after_dash = true;
  }
  return word.back() != '_';
}

// The last word of a name that says how it is quantized.
std::string QuantOfName(std::string_view name) {
  const std::string upper = Upper(name);
  std::string found;
  for (size_t begin = 0; begin < upper.size(); ++begin) {
    if (begin > 0 && std::string_view("-._").find(upper[begin - 1]) == std::string_view::npos) {
      continue;
    }
    const size_t end = std::min(upper.find_first_of("-.", begin), upper.size());
    const std::string_view word = std::string_view(upper).substr(begin, end - begin);
    if (!IsQuant(word)) continue;
    constexpr std::string_view kDynamic = "UD-";  // a mixture of types by layer
    const bool is_dynamic = upper.substr(0, begin).ends_with(kDynamic);
    found = (is_dynamic ? std::string(kDynamic) : "") + std::string(word);
  }
  return found;
}

// A file of a set of `count`; 1 of 1 where its name says nothing of parts.
struct PartOfSet {
  std::string stem;  // the path without the part and ".gguf"
  size_t index = 0;
  size_t count = 1;
};

std::optional<PartOfSet> PartOf(std::string_view path) {
  if (!path.ends_with(kGgufEnding)) return std::nullopt;
  PartOfSet part{.stem = std::string(path.substr(0, path.size() - kGgufEnding.size()))};
  constexpr std::string_view kForm = "-00000-of-00000";
  if (part.stem.size() <= kForm.size()) return part;
  const std::string_view tail = std::string_view(part.stem).substr(part.stem.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == '0' ? !IsDigit(tail[i]) : tail[i] != kForm[i]) return part;
  }
  size_t number = 0;
  size_t count = 0;
  std::from_chars(tail.data() + 1, tail.data() + 6, number);
  std::from_chars(tail.data() + 10, tail.data() + 15, count);
  if (number < 1 || number > count) return part;
  part.stem.resize(part.stem.size() - kForm.size());
  part.index = number - 1;
  part.count = count;
  return part;
}

// Labels are quantizations where these tell models apart, else the paths of first files.
void LabelModels(std::vector<ModelFiles>& models) {
  std::map<std::string, int> uses;
  for (const ModelFiles& model : models) uses[model.is_helper ? "" : model.quant]++;
  for (ModelFiles& model : models) {
    const bool is_told = !model.is_helper && !model.quant.empty() && uses[model.quant] == 1;
    model.label = is_told ? model.quant : model.paths.front();
  }
}

std::string LabelsOf(const std::vector<const ModelFiles*>& models) {
  std::vector<std::string> labels;
  for (const ModelFiles* model : models) {
    if (labels.size() == kMostListed) {
      labels.push_back("...");
      break;
    }
    labels.push_back(Printable(model->label, kMostPathBytes));
  }
  return fmt::format("{}", fmt::join(labels, ", "));
}

// Those that `choice` names: by quantization, else by file.
std::vector<const ModelFiles*> Matching(const std::vector<ModelFiles>& models,
                                        const std::string& choice) {
  std::vector<const ModelFiles*> found;
  for (const ModelFiles& model : models) {
    if (!model.is_helper && IsSameName(model.quant, choice)) found.push_back(&model);
  }
  if (!found.empty()) return found;
  for (const ModelFiles& model : models) {
    const bool is_named = std::any_of(
        model.paths.begin(), model.paths.end(),
        [&](const std::string& path) { return path == choice || FileNameOf(path) == choice; });
    if (is_named) found.push_back(&model);
  }
  return found;
}

}  // namespace

bool IsSameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ToUpper(x) == ToUpper(y); });
}

std::optional<ModelName> ParseModelName(std::string_view text) {
  bool is_address = false;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!text.starts_with(scheme)) continue;
    text.remove_prefix(scheme.size());
    is_address = true;
  }
  bool is_hub = false;
  for (const std::string_view host : {"huggingface.co/", "hf.co/"}) {
    if (!text.starts_with(host)) continue;
    text.remove_prefix(host.size());
    is_hub = true;
  }
  if (is_address && !is_hub) return std::nullopt;
  const size_t colon = text.find(':');
  std::string_view rest = text.substr(0, colon);
  std::string_view choice;
  if (colon != std::string_view::npos) {
    choice = text.substr(colon + 1);
    if (choice.empty()) return std::nullopt;
  }
  const std::string_view owner = NextPart(rest);
  const std::string_view repo = NextPart(rest);
  if (!IsHubWord(owner) || !IsHubWord(repo) || repo.ends_with(kGgufEnding)) return std::nullopt;
  if (!rest.empty()) {
    if (!is_hub || !choice.empty()) return std::nullopt;
    choice = FileOfAddress(rest);
  }
  if (choice.size() > kMostChoiceBytes) return std::nullopt;
  return ModelName{fmt::format("{}/{}", owner, repo), std::string(choice)};
}

std::string QuantOf(std::string_view path) {
  const auto part = PartOf(path);
  const std::string_view stem = part ? std::string_view(part->stem) : path;
  std::string quant = QuantOfName(FileNameOf(stem));
  if (!quant.empty()) return quant;
  const size_t slash = stem.rfind('/');
  return slash == std::string_view::npos ? "" : QuantOfName(FileNameOf(stem.substr(0, slash)));
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMostPathBytes || path.back() == '/') return false;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = NextPart(rest);
    if (part.empty() || part.size() > kMostPartBytes || part == "." || part == "..") return false;
    const auto is_control = [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte < 0x20 || byte == 0x7f;
    };
    if (std::any_of(part.begin(), part.end(), is_control)) return false;
  }
  return true;
}

std::vector<ModelFiles> GroupModelFiles(std::vector<std::string> paths) {
  std::sort(paths.begin(), paths.end());
  std::map<std::pair<std::string, size_t>, ModelFiles> by_stem;  // by part count too
  for (const std::string& path : paths) {
    const auto part = PartOf(path);
    if (!part) continue;
    ModelFiles& model = by_stem[{part->stem, part->count}];
    model.num_parts = part->count;
    model.paths.push_back(path);
    model.quant = QuantOf(path);
    const std::string name = Upper(FileNameOf(path));
    model.is_helper = name.starts_with("MMPROJ") || name.starts_with("IMATRIX");
  }
  std::vector<ModelFiles> models;
  for (auto& [stem, model] : by_stem) models.push_back(std::move(model));
  LabelModels(models);
  return models;
}

const std::vector<std::string>& PreferredQuants() {
  static const std::vector<std::string> kQuants = {"Q4_K_M", "Q4_0",   "Q4_K_S", "Q4_1",
                                                   "MXFP4",  "Q5_K_M", "Q5_K_S", "Q6_K",
                                                   "Q8_0",   "F16",    "BF16",   "F32"};
  return kQuants;
}

const ModelFiles& ChooseModel(const std::vector<ModelFiles>& models, const ModelName& name) {
  std::vector<const ModelFiles*> all;
  for (const ModelFiles& model : models) {
    if (!model.is_helper) all.push_back(&model);
  }
  std::vector<const ModelFiles*> found = all;
  if (!name.choice.empty()) {
    found = Matching(models, name.choice);
  } else if (all.size() > 1) {
    for (const std::string& quant : PreferredQuants()) {
      const auto preferred = Matching(models, quant);
      if (preferred.size() == 1) return *preferred.front();
    }
  }
  if (found.size() == 1) return *found.front();
  if (all.empty()) {
    throw Error(ErrorCode::kNotFound, name.repository,
                "it holds no GGUF file; repositories whose names end in -GGUF do");
  }
  if (found.empty()) {
    throw Error(
        ErrorCode::kNotFound, name.repository,
        fmt::format("it holds no '{}'; there is {}", Printable(name.choice, 200), LabelsOf(all)));
  }
  throw Error(ErrorCode::kInvalidArgument, name.Text(),
              fmt::format("it may be one of {}: say which, as in {}:{}", LabelsOf(found),
                          name.repository, Printable(found.front()->label, kMostPathBytes)));
}

}  // namespace hearth::hub
