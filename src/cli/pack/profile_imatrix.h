// hearth profile --imatrix.
#pragma once

#include <span>
#include <string>

#include "cli/options/model_options.h"
#include "model/model_spec.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth::cli {

struct ImatrixJob {
  std::string output;
  std::string text_name;  // which the file names as its source
  bool json = false;
};

// Runs the model over the text, writes the importance matrix and prints what it is. Returns the
// exit code.
int MakeImatrix(const ModelOptions& model, const ModelSpec& spec, std::span<const TokenId> text,
                const ImatrixJob& job);

}  // namespace hearth::cli
