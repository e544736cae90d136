#include "cli/options/sampling_options.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/options/option_values.h"

namespace hearth::cli {
namespace {

// "12=-1.5" of --logit-bias.
void AddLogitBias(const std::string& text, SamplingOptions& sampling) {
  const size_t equals = text.find('=');
  try {
    size_t used = 0;
    const int id = std::stoi(text.substr(0, equals), &used);
    if (equals == std::string::npos || used != equals || id < 0) throw std::invalid_argument("");
    const std::string value = text.substr(equals + 1);
    const float bias = std::stof(value, &used);
    // -inf forbids a token; no other number that is not finite means anything.
    const bool is_meant = std::isfinite(bias) || bias == -INFINITY;
    if (used != value.size() || !is_meant) throw std::invalid_argument("");
    sampling.logit_bias[id] = bias;
  } catch (const std::logic_error&) {
    throw UsageError("--logit-bias: expected TOKEN_ID=NUMBER (or =-inf), found '" +
                     Printable(text) + "'");
  }
}

}  // namespace

void AddSamplingOptions(CLI::App& command, SamplingOptions& s) {
  const std::string group = kSamplingGroup;
  command.add_option("--temp", s.temperature, "temperature; 0 takes the most likely (0.8)")
      ->option_text("T")
      ->group(group);
  AddSeedOption(command, s.seed, "same seed, same text (random)")->group(group);
  command.add_option("--top-k", s.top_k, "keep the K most likely tokens; 0: all (40)")
      ->option_text("K")
      ->group(group);
  command.add_option("--top-p", s.top_p, "keep the most likely up to this probability (0.95)")
      ->option_text("P")
      ->group(group);
  command.add_option("--min-p", s.min_p, "keep tokens with this share of the best one (0)")
      ->option_text("P")
      ->group(group);
  command.add_option("--repetition-penalty", s.repetition_penalty, "over recent tokens (1: none)")
      ->option_text("X")
      ->group(group);
  command
      .add_option("--repetition-window", s.repetition_window,
                  "recent tokens that it looks at; -1: all (64)")
      ->option_text("N")
      ->group(group);
  command.add_option("--frequency-penalty", s.frequency_penalty, "per earlier occurrence (0)")
      ->option_text("X")
      ->group(group);
  command.add_option("--presence-penalty", s.presence_penalty, "once per token that occurred (0)")
      ->option_text("X")
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&s](const std::vector<std::string>& items) {
            for (const std::string& item : items) AddLogitBias(item, s);
          },
          "add X to the logit of token ID (-inf: never); may be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->option_text("ID=X")
      ->group(group);
}

void CheckSamplingOptions(const CLI::App& command, const SamplingOptions& options) {
  AsUsage([&] { ValidateSampling(options); });
  const auto given = [&](const char* flag) { return command.count(flag) > 0; };
  if (options.temperature == 0) {
    for (const char* flag : {"--seed", "--top-k", "--top-p", "--min-p"}) {
      if (given(flag)) throw UsageError(std::string(flag) + " has no effect with --temp 0");
    }
  }
  if (given("--repetition-window") && options.repetition_penalty == 1) {
    throw UsageError("--repetition-window has no effect without --repetition-penalty");
  }
  if (given("--repetition-window") && options.repetition_window == 0) {
    throw UsageError("--repetition-window 0 leaves --repetition-penalty without effect");
  }
}

void CheckLogitBias(const SamplingOptions& sampling, const Tokenizer& tokenizer) {
  if (sampling.logit_bias.empty()) return;
  const TokenId last = sampling.logit_bias.rbegin()->first;
  if (static_cast<size_t>(last) < tokenizer.vocab_size()) return;
  throw UsageError(fmt::format("--logit-bias: expected a token id from 0 to {}, found {}",
                               tokenizer.vocab_size() - 1, last));
}

}  // namespace hearth::cli
