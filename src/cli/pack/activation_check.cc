#include "cli/pack/activation_check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "model/common_spec.h"

namespace hearth::cli {

std::optional<ActivationTrial> CheckActivation(Engine& engine, std::span<const TokenId> text) {
  const std::string& path = engine.model().path();
  const GgufFile file = engine.model().Reopen();
  if (SaysActivation(file)) return std::nullopt;
  std::optional<ActivationTrial> trial;
  {
    ProgressLine line("trying activations", ProgressUnit::kTokens);
    trial = TryActivations(engine, text, [&](uint64_t done, uint64_t all) {
      StopWhereInterrupted(path);
      line.Update(done, all);
    });
  }
  if (!trial || !trial->better) return trial;
  const std::string better = ActivationText(trial->scores[*trial->better].activation);
  const std::string own = ActivationText(trial->scores.front().activation);
  const std::string doubt = fmt::format(
      "its text is foreseen far better with {} than with {}, which it runs as ({}): add "
      "--activation {}",
      better, own, ActivationTrialText(*trial), better);
  if (!file.assumed().Has(kFfnActivationKey)) {
    throw Error(ErrorCode::kInvalidArgument, path,
                fmt::format("{}, or --activation {} to go on all the same", doubt, own));
  }
  PrintSentence(fmt::format("warning: {}: {}", path, doubt));
  return trial;
}

}  // namespace hearth::cli
