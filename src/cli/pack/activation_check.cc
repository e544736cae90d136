#include "cli/pack/activation_check.h"

#include <fmt/format.h>

#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/terminal.h"

namespace hearth::cli {

std::optional<ActivationTrial> CheckActivation(Engine& engine, std::span<const TokenId> text) {
  const std::string& path = engine.model().path();
  if (SaysActivation(engine.model().Reopen())) return std::nullopt;
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
  PrintSentence(
      fmt::format("warning: {}: its text is foreseen far better with {} than with {}, which it "
                  "runs as ({}): add --activation {}",
                  path, better, ActivationText(trial->scores.front().activation),
                  ActivationTrialText(*trial), better));
  return trial;
}

}  // namespace hearth::cli
