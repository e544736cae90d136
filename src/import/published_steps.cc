#include "import/published_steps.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "text/tokenizer/pretokenizers.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr char kSpaceMark[] = "\u2581";
constexpr int kMaxDepth = 4;
// How some files spell the contractions of the built-in patterns.
constexpr std::string_view kSpelledContractions =
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
constexpr std::string_view kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

class StepReader {
 public:
  explicit StepReader(const PublishedJson& tokenizer) : path_(tokenizer.path()) {
    if (const Json* normalizer = tokenizer.Find("normalizer")) Normalizer(*normalizer, 0);
    if (const Json* pre = tokenizer.Find("pre_tokenizer")) PreTokenizerStep(*pre, 0);
  }

  PublishedSteps Take() { return std::move(steps_); }

 private:
  [[noreturn]] void Refuse(const char* part, const std::string& expected,
                           const std::string& found) const {
    throw Error(ErrorCode::kUnsupported, path_, part, expected, "'" + Printable(found) + "'");
  }

  // Calls `read` with each object of the list `key`.
  template <typename Read>
  void EachOf(const PublishedJson& sequence, const char* key, int depth, const Read& read) {
    const Json* list = sequence.Find(key);
    if (list == nullptr || !list->is_array() || depth >= kMaxDepth) {
      throw Error(ErrorCode::kCorrupt, sequence.path(), key, "a list, not nested deeply",
                  list == nullptr ? "nothing" : list->type_name());
    }
    for (const Json& step : *list) read(step);
  }

  PublishedJson Step(const char* part, const Json& node) const {
    if (!node.is_object()) {
      throw Error(ErrorCode::kCorrupt, path_, part, "an object", node.type_name());
    }
    return {path_ + ": " + part, node};
  }

  void Normalizer(const Json& node, int depth) {
    const PublishedJson step = Step("normalizer", node);
    const std::string type = step.Text("type", "");
    if (type == "Sequence") {
      EachOf(step, "normalizers", depth, [&](const Json& one) { Normalizer(one, depth + 1); });
    } else if (type == "NFC") {
      steps_.nfc = true;
    } else if (type == "Prepend" && step.Text("prepend", kSpaceMark) == kSpaceMark) {
      steps_.prepends_space = true;
    } else if (type != "Replace" || step.Text("content", "") != kSpaceMark ||
               step.Object("pattern").Text("String", "") != " ") {
      Refuse("normalizer", "NFC, or a space mark for spaces", type);
    }
  }

  void PreTokenizerStep(const Json& node, int depth) {
    const PublishedJson step = Step("pre_tokenizer", node);
    const std::string type = step.Text("type", "");
    if (type == "Sequence") {
      EachOf(step, "pretokenizers", depth,
             [&](const Json& one) { PreTokenizerStep(one, depth + 1); });
    } else if (type == "Split") {
      Split(step);
    } else if (type == "Digits") {
      steps_.patterns.push_back(step.Bool("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      ByteLevel(step);
    } else if (type == "Metaspace") {
      Metaspace(step);
    } else {
      Refuse("pre_tokenizer", "Split, Digits, ByteLevel or Metaspace", type);
    }
  }

  void Split(const PublishedJson& step) {
    const std::string behavior = step.Text("behavior", "Isolated");
    const bool inverted = step.Bool("invert", false);
    std::string pattern = step.Object("pattern").Text("Regex", "");
    if (pattern.empty()) {
      // Spaces have become marks by then, so that nothing is cut.
      if (step.Object("pattern").Text("String", "") == " ") return;
      Refuse("pre_tokenizer: pattern", "a Regex", step.Object("pattern").json().dump());
    }
    // Pieces that are kept instead of cut out are the same ones where a pattern matches everything.
    if (!(behavior == "Isolated" && !inverted) && !(behavior == "Removed" && inverted)) {
      Refuse("pre_tokenizer: Split: behavior", "Isolated",
             behavior + (inverted ? ", inverted" : ""));
    }
    const size_t at = pattern.find(kSpelledContractions);
    if (at != std::string::npos) pattern.replace(at, kSpelledContractions.size(), kContractions);
    steps_.patterns.push_back(std::move(pattern));
  }

  void ByteLevel(const PublishedJson& step) {
    if (step.Bool("add_prefix_space", false)) {
      Refuse("pre_tokenizer: ByteLevel", "texts as they are", "add_prefix_space");
    }
    steps_.byte_level = true;
    // GPT-2's pattern, which ByteLevel knows by heart.
    if (step.Bool("use_regex", true)) {
      steps_.patterns.emplace_back(FindPreTokenizerOrNull("gpt-2")->patterns.front());
    }
  }

  void Metaspace(const PublishedJson& step) {
    if (step.Text("replacement", kSpaceMark) != kSpaceMark) {
      Refuse("pre_tokenizer: Metaspace: replacement", kSpaceMark, step.Text("replacement", ""));
    }
    const bool adds = step.Bool("add_prefix_space", true);
    const std::string scheme = step.Text("prepend_scheme", adds ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      Refuse("pre_tokenizer: Metaspace: prepend_scheme", "always, first or never", scheme);
    }
    steps_.metaspace = scheme;
  }

  std::string path_;
  PublishedSteps steps_;
};

}  // namespace

PublishedSteps ReadPublishedSteps(const PublishedJson& tokenizer) {
  return StepReader(tokenizer).Take();
}

}  // namespace hearth
