#include "cli/screen/report.h"

#include <fmt/format.h>

#include "base/memory_info.h"
#include "base/memory_lock.h"
#include "base/units.h"

namespace hearth::cli {

namespace {

// Bytes of pages that have no memory when the cache is full.
uint64_t FlashBytesWhenFull(const KvPool& kv) {
  return static_cast<uint64_t>(kv.num_pages() - kv.frames().count()) * kv.layout().page_bytes();
}

nlohmann::ordered_json KvJson(const KvPool& kv) {
  nlohmann::ordered_json flash = nullptr;
  if (kv.flash() != nullptr) {
    const KvFlashCounts counts = kv.flash()->counts();
    flash = {{"now_bytes", kv.flash()->used_bytes()},
             {"full_bytes", FlashBytesWhenFull(kv)},
             {"written_bytes", counts.written_bytes},
             {"read_bytes", counts.read_bytes},
             {"wait_ms", counts.wait_seconds * 1000}};
  }
  return {{"now_bytes", kv.used_bytes()},
          {"full_bytes", kv.bytes()},
          {"lent_bytes", kv.lent_bytes()},
          {"flash", flash}};
}

// Null where all weights but FFNs are in memory.
nlohmann::ordered_json EmbeddingJson(const RowTable* table) {
  if (table == nullptr) return nullptr;
  const RowTableCounts counts = table->counts();
  return {{"file_bytes", table->spec().bytes()},
          {"found_rows", counts.found},
          {"read_rows", counts.read},
          {"read_ms", counts.read_seconds * 1000}};
}

std::string EmbeddingText(const RowTable* table) {
  if (table == nullptr) return "";
  const RowTableCounts counts = table->counts();
  return fmt::format("  {:<14}{:>12} stay in the file; {} of {} rows were read, in {:.1f} ms\n",
                     "embeddings", FormatSize(table->spec().bytes()), counts.read,
                     counts.read + counts.found, counts.read_seconds * 1000);
}

std::string KvFlashText(const KvPool& kv) {
  if (kv.flash() == nullptr) return "";
  return fmt::format("  {:<14}{:>12} now, {} when it is full, in {}\n", "kv on flash",
                     FormatSize(kv.flash()->used_bytes()), FormatSize(FlashBytesWhenFull(kv)),
                     kv.flash()->file().name());
}

}  // namespace

nlohmann::ordered_json MemoryJson(Engine& engine, const ModelOptions& options) {
  nlohmann::ordered_json ledger = nlohmann::ordered_json::object();
  for (const auto& [name, bytes] : engine.budget().Ledger()) ledger[name] = bytes;
  nlohmann::ordered_json budget = nullptr;
  if (options.memory_bytes || !options.plan.empty()) budget = engine.budget().limit_bytes();
  return {{"budget_bytes", budget},
          {"rss_peak_bytes", PeakResidentBytes()},
          {"ledger", ledger},
          {"kv", KvJson(engine.kv_pool())},
          {"embedding", EmbeddingJson(engine.embedding())},
          {"device", DeviceJson(engine)}};
}

nlohmann::ordered_json QualityJson(const Quality& quality) {
  const auto or_null = [](const std::optional<double>& share) {
    return share ? nlohmann::ordered_json(*share) : nlohmann::ordered_json(nullptr);
  };
  return {{"active", or_null(quality.active)},
          {"gate", or_null(quality.gate)},
          {"computed", quality.computed},
          {"listed", or_null(quality.listed)},
          {"recall", or_null(quality.recall)},
          {"precision", or_null(quality.precision)},
          {"top1_agreement", or_null(quality.top1_agreement)}};
}

std::string QualityText(const Quality& quality) {
  std::string text;
  const auto add = [&text](const char* what, const std::optional<double>& share) {
    if (share) text += fmt::format("{}{:.1f}% {}", text.empty() ? "" : ", ", 100 * *share, what);
  };
  add("of neurons active", quality.active);
  add("listed", quality.listed);
  if (quality.active) add("computed", quality.computed);
  add("of the activation found", quality.recall);
  add("of the listed active", quality.precision);
  add("of likeliest tokens as dense", quality.top1_agreement);
  return text;
}

nlohmann::ordered_json PhaseJson(const PhaseTime& phase) {
  return {{"tokens", phase.tokens}, {"ms", phase.ms}, {"tok_s", phase.TokensPerSecond()}};
}

namespace {

std::string PlanLine(const ModelOptions& options) {
  if (!options.planned) return "";
  const ExecutionPlan& plan = *options.planned;
  return fmt::format(
      "plan {}: {:.1f} tok/s decoding, bound by {}, in {}; {} processors, reads: {}\n",
      options.plan, plan.decode_tok_s, plan.bound, FormatSize(plan.budget_bytes), plan.threads(),
      plan.io_strategy);
}

std::string AdaptersText(const Engine& engine) {
  std::string text;
  for (size_t id = 0; id < engine.adapters().size(); ++id) {
    const LoadedAdapter& adapter = engine.adapters().at(id);
    text += fmt::format("adapter {}: {}, weight {}, {}\n", id, adapter.path(),
                        engine.adapters().default_weights()[id], FormatSize(adapter.bytes()));
  }
  return text;
}

}  // namespace

std::string EngineText(Engine& engine, const ModelOptions& options) {
  return fmt::format("{} on {} threads with {} kernels, context {} tokens, {} FFNs\n",
                     options.model, engine.compute().threads(), engine.compute().isa(),
                     engine.context(), FfnModeName(engine.mode())) +
         PlanLine(options) + StreamedText(engine) + DeviceText(engine) + AdaptersText(engine);
}

std::string LedgerText(const Engine& engine) {
  std::string text;
  for (const auto& [name, bytes] : engine.budget().Ledger()) {
    text += fmt::format("  {:<14}{:>12}\n", name, FormatSize(bytes));
  }
  const KvPool& kv = engine.kv_pool();
  const std::string lent =
      engine.is_streamed()
          ? fmt::format("; until then {} of it are a cache of FFNs", FormatSize(kv.lent_bytes()))
          : "";
  return text +
         fmt::format("  {:<14}{:>12} of {}\n", "sum", FormatSize(engine.budget().used_bytes()),
                     FormatSize(engine.budget().limit_bytes())) +
         fmt::format("  {:<14}{:>12} now, {} when it is full{}\n", "kv in use",
                     FormatSize(kv.used_bytes()), FormatSize(kv.bytes()), lent) +
         KvFlashText(kv) + EmbeddingText(engine.embedding()) +
         (LockedBytes() > 0 ? "  all of it is locked in memory\n" : "") + DeviceLedgerText(engine);
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::cli
