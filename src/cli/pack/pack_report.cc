#include "cli/pack/pack_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "sparsity/profile_stats.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

// Where more neurons than this are active, computing only those gains nothing in memory.
constexpr double kSparseShare = 0.5;
// From here on a user had better take another file to pack.
constexpr double kLargeDownError = 0.02;

double Change(const TextScore& from, const TextScore& to) {
  return to.perplexity() / from.perplexity() - 1;
}

std::string CostText(const PackReport& report) {
  std::string text;
  if (report.result.down_error > 0) {
    text += fmt::format(
        "the down matrices were rounded again, because single neurons need another layout: {:.2f}% "
        "error{}\n",
        100 * report.result.down_error,
        report.result.down_error > kLargeDownError ? "; a model in Q8_0 or F16 would lose less"
                                                   : "");
  }
  if (!report.trial.score || !report.lessons) {
    return text + fmt::format("what packing costs in perplexity was not measured: {}\n",
                              report.lessons ? report.trial.missing : "there is no --text");
  }
  const TextScore& source = report.lessons->source;
  return text + fmt::format(
                    "perplexity {:.4f} before packing, {:.4f} packed ({:+.2f}%), over {} tokens of "
                    "the text{}\n",
                    source.perplexity(), report.trial.score->perplexity(),
                    100 * Change(source, *report.trial.score), source.tokens,
                    report.lessons->is_unseen
                        ? " that nothing was learned from"
                        : ", which is too short to leave any that nothing was learned from");
}

int64_t NumTrained(const MadePredictors& made) {
  return std::count_if(made.reports.begin(), made.reports.end(),
                       [](const PredictorReport& report) { return report.trained; });
}

std::string PredictorText(const MadePredictors& made, const PredictionQuality& predicted,
                          bool are_good) {
  const ListQuality quality = predicted.Total();
  const int64_t trained = NumTrained(made);
  std::string text = fmt::format(
      "predictors name {:.1f}% of them, find {:.2f}% of the activation and change perplexity by "
      "{:+.2f}%; they take {} ({:.1f}% of the model{})\n",
      100 * quality.computed_share(), 100 * quality.recall(),
      100 * (predicted.perplexity_ratio() - 1), FormatSize(made.bytes), 100 * made.bytes_share,
      trained > 0 ? fmt::format("; {} of {} are trained", trained, made.reports.size()) : "");
  if (!are_good) {
    text += "they miss too much for --mode auto: only --mode predicted uses them\n";
  }
  return text;
}

// Where the text speaks against the activation that was packed; empty where it does not.
std::string ActivationDoubt(const TextLessons& lessons) {
  if (!lessons.activations || !lessons.activations->better) return "";
  const ActivationTrial& trial = *lessons.activations;
  const std::string better = ActivationText(trial.scores[*trial.better].activation);
  return fmt::format(
      "the text fits far better with {}: pack the model again with --activation {}\n", better,
      better);
}

std::string LessonsText(const TextLessons& lessons) {
  if (!lessons.predictors && !lessons.silu) {
    return ActivationDoubt(lessons) +
           "every neuron of this model is always active: there is nothing to predict, and packing "
           "helps only where the model is larger than the memory (--silu-threshold leaves out the "
           "quietest neurons, at a cost that you state)\n";
  }
  const double active = Summarize(lessons.profile, -1).active_rate;
  std::string text = fmt::format("{:.1f}% of neurons are active; ", 100 * active);
  if (lessons.silu) {
    text += fmt::format(
        "the thresholds of SiLU that leave out the others move perplexity from {:.4f} to {:.4f} "
        "({:+.2f}%)\n",
        lessons.source.perplexity(), lessons.thresholded->perplexity(),
        100 * Change(lessons.source, *lessons.thresholded));
  } else {
    text += PredictorText(*lessons.predictors, *lessons.predicted, lessons.predictors_are_good);
  }
  text += ActivationDoubt(lessons);
  if (active > kSparseShare) {
    text +=
        "this model is not sparse: packing will not make it faster in memory, only where it is "
        "larger than the memory\n";
  }
  return text;
}

std::string ModeText(const PackReport& report) {
  const PackTrial& trial = report.trial;
  std::string text;
  for (const ModeSpeed& speed : trial.speeds) {
    text += fmt::format("{:<10}{:>10.2f} tok/s, prompts {:>10.1f} tok/s\n", FfnModeName(speed.mode),
                        speed.decode_tok_s, speed.prefill_tok_s);
  }
  const std::string why =
      report.mode_was_given    ? ", as --mode says"
      : !trial.speeds.empty()  ? " (the fastest of these here; less than 3% is taken for a tie)"
      : !trial.missing.empty() ? fmt::format("; speeds were not measured: {}", trial.missing)
                               : ", the only one for it";
  return text + fmt::format("--mode auto is {} for this file{}\n", FfnModeName(trial.mode), why);
}

Json PerplexityJson(const PackReport& report) {
  if (!report.trial.score || !report.lessons) return nullptr;
  return {{"tokens", report.trial.score->tokens},
          {"source", report.lessons->source.perplexity()},
          {"packed", report.trial.score->perplexity()},
          {"change", Change(report.lessons->source, *report.trial.score)},
          {"unseen", report.lessons->is_unseen}};
}

Json SiluJson(const PackReport& report) {
  if (!report.lessons || !report.lessons->silu) return nullptr;
  const SiluCalibration& silu = *report.lessons->silu;
  const TextScore &before = report.lessons->source, &after = *report.lessons->thresholded;
  return {{"tokens", before.tokens},
          {"perplexity_before", before.perplexity()},
          {"perplexity_after", after.perplexity()},
          {"active", silu.active},
          {"thresholds", silu.thresholds}};
}

Json PredictorJson(const PackReport& report) {
  if (!report.lessons || !report.lessons->predictors) return nullptr;
  const MadePredictors& made = *report.lessons->predictors;
  const PredictionQuality& predicted = *report.lessons->predicted;
  const ListQuality quality = predicted.Total();
  return {{"tokens", predicted.tokens},
          {"listed", quality.computed_share()},
          {"recall", quality.recall()},
          {"precision", quality.precision()},
          {"top1_agreement", predicted.top1_agreement},
          {"perplexity_change", predicted.perplexity_ratio() - 1},
          {"bytes", made.bytes},
          {"bytes_share", made.bytes_share},
          {"trained", NumTrained(made)},
          {"meet_targets", report.lessons->predictors_are_good}};
}

Json SpeedsJson(const PackTrial& trial) {
  Json speeds = Json::array();
  for (const ModeSpeed& speed : trial.speeds) {
    speeds.push_back({{"mode", FfnModeName(speed.mode)},
                      {"decode_tok_s", speed.decode_tok_s},
                      {"prefill_tok_s", speed.prefill_tok_s}});
  }
  return speeds.empty() ? Json(nullptr) : speeds;
}

}  // namespace

std::string PackText(const PackReport& report) {
  const PackResult& result = report.result;
  return fmt::format("wrote {}: {} neurons in bundles of {} bytes ({}), {}\n", report.path,
                     result.neurons, result.layout.stride, NameOf(result.quant),
                     FormatSize(result.file_bytes)) +
         CostText(report) + (report.lessons ? LessonsText(*report.lessons) : "") + ModeText(report);
}

Json PackJson(const PackReport& report) {
  const PackResult& result = report.result;
  const std::string& missing = report.trial.missing;
  Json active = nullptr;
  if (report.lessons) active = Summarize(report.lessons->profile, -1).active_rate;
  return {{"file", report.path},
          {"bytes", result.file_bytes},
          {"neurons", result.neurons},
          {"bundle", {{"type", NameOf(result.quant)}, {"stride", result.layout.stride}}},
          {"down_error", result.down_error},
          {"perplexity", PerplexityJson(report)},
          {"active", active},
          {"silu", SiluJson(report)},
          {"predictors", PredictorJson(report)},
          {"mode", FfnModeName(report.trial.mode)},
          {"speeds", SpeedsJson(report.trial)},
          {"not_measured", missing.empty() ? Json(nullptr) : Json(missing)}};
}

}  // namespace hearth::cli
