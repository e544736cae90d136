// hearth template: a chat template rendered with a context.
#include "text/jinja/template.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
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
#include "storage/block_reader.h"
#include "storage/text_file.h"
#include "text/chat/chat_template.h"

namespace hearth::cli {
namespace {

struct TemplateOptions {
  std::string file;
  std::string context;
  bool json = false;
};

// Whoever writes a context by hand vouches for the special tokens in it, as a program does.
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                          "sep_token", "cls_token", "mask_token"};

bool IsGguf(const std::string& path) {
  if (IsStream(path)) return false;
  char magic[4] = {};
  const auto file = OpenFileReader(path);
  if (file->size_bytes() < sizeof magic) return false;
  file->ReadAt(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic, sizeof magic) == "GGUF";
}

// The template of the file; what a model adds to the context is added.
jinja::Template ReadTemplate(const std::string& path, jinja::Context& context) {
  if (!IsGguf(path)) return jinja::Template(ReadTextFile(path), path);
  const GgufFile file = OpenModel(path);
  const std::string* source = file.metadata().FindString("tokenizer.chat_template");
  if (source == nullptr) {
    throw Error(ErrorCode::kNotFound, path, "the model carries no chat template");
  }
  SpecialTexts::Of(*Tokenizer::FromGguf(file.metadata())).AddTo(context);
  return jinja::Template(*source, path);
}

int RenderTemplate(const TemplateOptions& options) {
  jinja::Context context = jinja::Context::FromJson(ReadTextFile(options.context), options.context);
  for (const char* name : kSpecialTokens) context.Trust(name);
  const jinja::Template chat_template = ReadTemplate(FindModel(options.file), context);
  const std::vector<ChatPiece> pieces = chat_template.Render(context);
  if (!options.json) {
    std::string text;
    for (const ChatPiece& piece : pieces) text += piece.text;
    WriteOutput(text);
    return kExitDone;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatPiece& piece : pieces) {
    list.push_back({{"text", piece.text}, {"trusted", piece.trusted}});
  }
  WriteOutput(DumpJson({{"pieces", list}}));
  return kExitDone;
}

}  // namespace

void AddTemplateCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = app.add_subcommand("template", "Render a chat template");
  AddFileOption(*command, "--template", options->file,
                "the template: a Jinja file, or a model (GGUF, or its name) with its own")
      ->required();
  AddFileOption(*command, "--context", options->context,
                "JSON object with the variables: messages, tools, add_generation_prompt, ...")
      ->required();
  command->add_flag("--json", options->json,
                    "print the pieces as JSON, each with whether it may hold special tokens");
  command->callback(
      [options, &action] { action = [options] { return RenderTemplate(*options); }; });
}

}  // namespace hearth::cli
