#include "cli/pack/quantize_report.h"

#include <fmt/format.h>

#include "base/units.h"

namespace hearth::cli {
namespace {

double BitsOfWeight(uint64_t bytes, uint64_t weights) {
  return 8 * static_cast<double>(bytes) / static_cast<double>(weights);
}

std::string TotalsText(const TypeTotals& totals) {
  std::string text;
  for (const auto& [type, total] : totals) {
    text += fmt::format("{}{} {} ({} tensor{})", text.empty() ? "" : ", ", NameOf(type),
                        FormatSize(total.bytes), total.tensors, total.tensors == 1 ? "" : "s");
  }
  return text;
}

nlohmann::ordered_json TotalsJson(const TypeTotals& totals) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [type, total] : totals) {
    list.push_back({{"type", NameOf(type)},
                    {"tensors", total.tensors},
                    {"weights", total.weights},
                    {"bytes", total.bytes}});
  }
  return list;
}

}  // namespace

std::string QuantizeNotices(const QuantizeResult& result, bool has_importance) {
  std::string text;
  for (const auto& [types, tensors] : result.fallbacks) {
    text += fmt::format("{} matri{} {} instead of {}: {} does not divide their rows\n", tensors,
                        tensors == 1 ? "x is" : "ces are", NameOf(types.second),
                        NameOf(types.first), InfoOf(types.first).block_size);
  }
  if (has_importance && result.without_importance > 0) {
    text +=
        fmt::format("{} matri{} quantized without importance: --imatrix has no entry for {}\n",
                    result.without_importance, result.without_importance == 1 ? "x is" : "ces are",
                    result.without_importance == 1 ? "it" : "them");
  }
  if (result.requantized > 0) {
    text += fmt::format("{} matri{} quantized already: what that lost stays lost\n",
                        result.requantized, result.requantized == 1 ? "x was" : "ces were");
  }
  return text;
}

std::string QuantizeText(const QuantizeResult& result, const std::optional<ForesightPair>& text) {
  std::string report =
      fmt::format("before  {:.2f} bits a weight: {}\nafter   {:.2f} bits a weight: {}\n",
                  BitsOfWeight(result.source_bytes, result.weights), TotalsText(result.before),
                  BitsOfWeight(result.written_bytes, result.weights), TotalsText(result.after));
  if (!text) return report;
  const double before = text->before.score.perplexity(), after = text->after.score.perplexity();
  return report + fmt::format(
                      "perplexity {:.4f} before, {:.4f} after ({:+.2f}%); the same likeliest token "
                      "at {:.1f}% of {} positions\n",
                      before, after, 100 * (after / before - 1),
                      100 * AgreementOf(text->before, text->after), text->after.score.tokens);
}

nlohmann::ordered_json QuantizeJson(const QuantizeResult& result, bool has_importance,
                                    const std::optional<ForesightPair>& text) {
  nlohmann::ordered_json fallbacks = nlohmann::ordered_json::array();
  for (const auto& [types, tensors] : result.fallbacks) {
    fallbacks.push_back(
        {{"wished", NameOf(types.first)}, {"type", NameOf(types.second)}, {"tensors", tensors}});
  }
  nlohmann::ordered_json json = {
      {"weights", result.weights},
      {"bits_per_weight",
       {{"before", BitsOfWeight(result.source_bytes, result.weights)},
        {"after", BitsOfWeight(result.written_bytes, result.weights)}}},
      {"before", TotalsJson(result.before)},
      {"after", TotalsJson(result.after)},
      {"fallbacks", fallbacks},
      {"requantized", result.requantized},
      {"without_importance",
       has_importance ? nlohmann::ordered_json(result.without_importance) : nullptr},
      {"text", nullptr}};
  if (text) {
    json["text"] = {
        {"tokens", text->after.score.tokens},
        {"perplexity",
         {{"before", text->before.score.perplexity()}, {"after", text->after.score.perplexity()}}},
        {"same_likeliest", AgreementOf(text->before, text->after)}};
  }
  return json;
}

}  // namespace hearth::cli
