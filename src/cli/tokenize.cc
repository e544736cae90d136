// hearth tokenize: the token ids of a text.
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/find_model.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/text_input.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

namespace hearth::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  std::string file;
  bool special = false;
  bool json = false;
};

int Tokenize(const TokenizeOptions& options) {
  const std::string text = options.text            ? *options.text
                           : !options.file.empty() ? ReadTextFile(options.file)
                                                   : ReadStandardInput();
  const GgufFile file = GgufFile::Open(FindModel(options.model));
  const auto tokenizer = Tokenizer::FromGguf(file.metadata());
  std::vector<TokenId> ids = tokenizer->Encode(text, {.parse_special = options.special});
  if (options.special) ids = tokenizer->WithBos(std::move(ids));
  if (options.json) {
    std::vector<std::string> pieces;
    for (const TokenId id : ids) pieces.push_back(tokenizer->VocabularyText(id));
    WriteOutput(DumpJson({{"tokens", ids.size()}, {"token_ids", ids}, {"pieces", pieces}}));
    return kExitDone;
  }
  std::string line;
  for (const TokenId id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  WriteOutput(line + "\n");
  return kExitDone;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text");
  command->add_option("MODEL", options->model, kModelHelp)->required()->check(NotEmpty());
  auto* text = command->add_option("-p,--prompt", options->text, "the text")->option_text("TEXT");
  command->add_option("-f,--file", options->file, "file whose bytes are the text")
      ->option_text("FILE")
      ->check(NotEmpty())
      ->excludes(text);
  command->add_flag("--special", options->special,
                    "begin with BOS where the model does, and read special tokens in the text");
  command->add_flag("--json", options->json, "print ids and pieces as JSON");
  command->callback([options, &action] { action = [options] { return Tokenize(*options); }; });
}

}  // namespace hearth::cli
