#include "cli/options/text_input.h"

#include <unistd.h>

#include "storage/text_file.h"

namespace hearth::cli {
namespace {

constexpr TextLimit kTextLimit = {.most_bytes = uint64_t{1} << 30, .what = "a text"};

}  // namespace

std::string ReadTextFile(const std::string& path) {
  return path == "-" ? ReadStandardInput() : ReadText(path, kTextLimit);
}

std::string ReadStandardInput() { return ReadStream(STDIN_FILENO, "standard input", kTextLimit); }

bool StandardInputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

bool StandardOutputIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

}  // namespace hearth::cli
