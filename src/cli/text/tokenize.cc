// hearth tokenize: the token ids of a text.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "format/gguf.h"
#include "import/open_model.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  std::string file;
  std::string texts;
  bool special = false;
  bool json = false;
};

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text, bool special) {
  std::vector<TokenId> ids = tokenizer.Encode(text, {.parse_special = special});
  return special ? tokenizer.WithBos(std::move(ids)) : ids;
}

std::string Line(const std::vector<TokenId>& ids) {
  std::string line;
  for (const TokenId id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line + "\n";
}

// Every line of `file` is a JSON text; so is every line of what is printed, its ids.
int TokenizeTexts(const Tokenizer& tokenizer, const std::string& file, bool special) {
  std::string out;
  std::istringstream lines(ReadTextFile(file));
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    const auto text = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!text.is_string()) {
      throw Error(ErrorCode::kInvalidArgument, file, "line " + std::to_string(number),
                  "a text as JSON, in quotation marks", Printable(line));
    }
    out += Line(Encode(tokenizer, text.get_ref<const std::string&>(), special));
  }
  WriteOutput(out);
  return kExitDone;
}

int Tokenize(const TokenizeOptions& options) {
  const std::string text = !options.texts.empty()  ? ""
                           : options.text          ? *options.text
                           : !options.file.empty() ? ReadTextFile(options.file)
                                                   : ReadStandardInput();
  const GgufFile file = OpenModel(FindModel(options.model));
  const auto tokenizer = Tokenizer::FromGguf(file.metadata());
  for (const std::string& warning : tokenizer->warnings()) PrintSentence("warning: " + warning);
  if (!options.texts.empty()) return TokenizeTexts(*tokenizer, options.texts, options.special);
  const std::vector<TokenId> ids = Encode(*tokenizer, text, options.special);
  if (options.json) {
    std::vector<std::string> pieces;
    for (const TokenId id : ids) pieces.push_back(tokenizer->VocabularyText(id));
    WriteOutput(DumpJson({{"tokens", ids.size()}, {"token_ids", ids}, {"pieces", pieces}}));
    return kExitDone;
  }
  WriteOutput(Line(ids));
  return kExitDone;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text");
  command->add_option("MODEL", options->model, kModelHelp)->required()->check(NotEmpty());
  auto* text = command->add_option("-p,--prompt", options->text, "the text")->option_text("TEXT");
  AddFileOption(*command, "-f,--file", options->file, "file whose bytes are the text")
      ->excludes(text);
  AddFileOption(*command, "--json-lines", options->texts,
                "file with a text as JSON on every line; prints a line of ids for each")
      ->excludes(text);
  command->add_flag("--special", options->special,
                    "begin with BOS where the model does, and read special tokens in the text");
  command->add_flag("--json", options->json, "print ids and pieces as JSON");
  command->callback([options, &action] { action = [options] { return Tokenize(*options); }; });
}

}  // namespace hearth::cli
