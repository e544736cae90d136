#include "cli/pack/activation_report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "sparsity/profile_stats.h"
#include "tensor/op_names.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string SummaryRow(const std::string& name, const ActivationSummary& s, bool has_experts) {
  std::string row =
      fmt::format("{:>5}{:>11.1f}%{:>11.1f}%{:>19.1f}%{:>14.1f}%{:>14}", name, 100 * s.gate_rate,
                  100 * s.active_rate, 100 * s.hot_activations, 100 * s.hot_output, s.never_active);
  if (has_experts) row += fmt::format("{:>16}", s.unused_experts);
  return row + "\n";
}

Json SummaryJson(const ActivationSummary& s) {
  return {{"neurons", s.neurons},
          {"gate", s.gate_rate},
          {"active", s.active_rate},
          {"hot_activations", s.hot_activations},
          {"hot_output", s.hot_output},
          {"co_active", s.co_active},
          {"co_active_cold", s.co_active_cold},
          {"never_active", s.never_active},
          {"unused_experts", s.unused_experts}};
}

// How often each expert was chosen, or null.
Json ExpertTokensJson(const ModelProfile& profile, int64_t layer) {
  if (profile.num_experts == 0) return nullptr;
  Json tokens = Json::array();
  for (int64_t expert = 0; expert < profile.num_experts; ++expert) {
    tokens.push_back(profile.At(layer, expert).tokens);
  }
  return tokens;
}

}  // namespace

std::string ActivationText(const ModelProfile& profile) {
  const bool has_experts = profile.num_experts > 0;
  std::string text = fmt::format(
      "{}: {}, {} layers{} of {} neurons, {} tokens\n\n{:>5}{:>12}{:>12}{:>20}{:>15}{:>14}{}\n",
      profile.model_name.empty() ? "model" : Printable(profile.model_name),
      FfnActivationName(profile.activation), profile.num_layers,
      has_experts ? fmt::format(" of {} experts", profile.num_experts) : std::string(),
      profile.intermediate_size, profile.text_tokens, "layer", "gate fires", "active",
      "80% of activations", "80% of output", "never active", has_experts ? "  unused experts" : "");
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    text += SummaryRow(std::to_string(layer), Summarize(profile, layer), has_experts);
  }
  const ActivationSummary all = Summarize(profile, -1);
  text += SummaryRow("all", all, has_experts);
  if (profile.goes_sparse()) {
    text += fmt::format(
        "\n{:.1f}% of the gates that fire are of active neurons, whose up and down are needed too; "
        "{:.1f}% without the neurons that carry 80% of the activations\n",
        100 * all.co_active, 100 * all.co_active_cold);
  } else {
    text += fmt::format(
        "\nSiLU is never exactly zero: although only {:.1f}% of gates are over zero, {:.1f}% of "
        "neurons are active for every token, so this model does not go sparse and runs dense.\n",
        100 * all.gate_rate, 100 * all.active_rate);
  }
  return text;
}

Json ActivationJson(const ModelProfile& profile) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    Json row = {{"layer", layer}};
    row.update(SummaryJson(Summarize(profile, layer)));
    row["expert_tokens"] = ExpertTokensJson(profile, layer);
    layers.push_back(row);
  }
  return {{"model", profile.model_name},
          {"model_hash", fmt::format("{:016x}", profile.model_hash)},
          {"activation", FfnActivationName(profile.activation)},
          {"goes_sparse", profile.goes_sparse()},
          {"tokens", profile.text_tokens},
          {"context", profile.context},
          {"num_experts", profile.num_experts},
          {"intermediate_size", profile.intermediate_size},
          {"all", SummaryJson(Summarize(profile, -1))},
          {"layers", layers}};
}

}  // namespace hearth::cli
