#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace hearth::serve {
namespace {

std::string Head(const std::string& name, const char* type, const std::string& help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <typename Number>
std::string One(const std::string& name, const char* type, const std::string& help, Number value) {
  return Head(name, type, help) + fmt::format("{} {}\n", name, value);
}

// Label values may hold anything but these.
std::string Escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string Memory(const api::ModelInfo& info, const api::Stats& stats) {
  std::string text =
      Head("hearth_memory_bytes", "gauge", "Memory that the ledger holds, by purpose.");
  for (const auto& [name, bytes] : stats.ledger) {
    text += fmt::format("hearth_memory_bytes{{purpose=\"{}\"}} {}\n", Escaped(name), bytes);
  }
  text += One("hearth_memory_limit_bytes", "gauge", "The memory limit.", info.memory_limit_bytes);
  text += One("hearth_resident_bytes", "gauge", "Resident memory of the process.",
              stats.resident_bytes);
  text += Head("hearth_kv_pages", "gauge", "Pages of the KV cache, of 64 tokens each.");
  text += fmt::format("hearth_kv_pages{{state=\"all\"}} {}\n", stats.kv_pages);
  text += fmt::format("hearth_kv_pages{{state=\"free\"}} {}\n", stats.kv_pages_free);
  text += fmt::format("hearth_kv_pages{{state=\"promised\"}} {}\n", stats.kv_pages_promised);
  text += fmt::format("hearth_kv_pages{{state=\"flash\"}} {}\n", stats.kv_pages_on_flash);
  return text;
}

std::string Work(const api::Stats& stats) {
  std::string text;
  text += One("hearth_requests_running", "gauge", "Requests that are computed together.",
              stats.running);
  text += One("hearth_requests_waiting", "gauge", "Requests in the queue.", stats.waiting);
  text += One("hearth_prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
              stats.prompt_tokens);
  text += One("hearth_reused_tokens_total", "counter",
              "Tokens of prompts that were in the KV cache already.", stats.reused_tokens);
  text += One("hearth_generated_tokens_total", "counter", "Tokens computed in decode passes.",
              stats.generated_tokens);
  text += One("hearth_prefill_seconds_total", "counter", "Time in passes over prompts.",
              stats.prefill_seconds);
  text +=
      One("hearth_decode_seconds_total", "counter", "Time in decode passes.", stats.decode_seconds);
  text +=
      One("hearth_prefill_passes_total", "counter", "Passes over prompts.", stats.prefill_passes);
  text += One("hearth_decode_passes_total", "counter", "Decode passes.", stats.decode_passes);
  text += One("hearth_failed_passes_total", "counter", "Passes that failed.", stats.failed_passes);
  text += One("hearth_prefill_tokens_per_second", "gauge", "Prompt tokens per second of passes.",
              PerSecond(stats.prompt_tokens, stats.prefill_seconds));
  text += One("hearth_decode_tokens_per_second", "gauge", "Generated tokens per second of passes.",
              PerSecond(stats.generated_tokens, stats.decode_seconds));
  return text;
}

std::string Reads(const api::Stats& stats) {
  std::string text = Head("hearth_neurons_total", "counter",
                          "What decoding asked for of streamed FFNs, by where it was.");
  const std::pair<const char*, int64_t> places[] = {{"pinned", stats.neurons_pinned},
                                                    {"cached", stats.neurons_cached},
                                                    {"storage", stats.neurons_read}};
  for (const auto& [place, count] : places) {
    text += fmt::format("hearth_neurons_total{{place=\"{}\"}} {}\n", place, count);
  }
  text += One("hearth_hit_ratio", "gauge", "Share of it that was in memory.", stats.hit_rate());
  text += One("hearth_read_bytes_total", "counter", "Bytes read from the model's file.",
              stats.bytes_read);
  text += One("hearth_decode_read_bytes_total", "counter", "Of them, read by decode passes.",
              stats.decode_bytes_read);
  text +=
      One("hearth_decode_reads_total", "counter", "Reads of decode passes.", stats.decode_reads);
  return text;
}

std::string Sessions(const api::Stats& stats) {
  std::string text;
  text += One("hearth_sessions", "gauge", "Files in the session folder.", stats.sessions);
  text += One("hearth_session_bytes", "gauge", "Their bytes.", stats.session_bytes);
  text += One("hearth_sessions_saved_total", "counter", "Sessions written.", stats.sessions_saved);
  text += One("hearth_sessions_saved_bytes_total", "counter", "Their bytes.",
              stats.sessions_saved_bytes);
  text += One("hearth_sessions_restored_total", "counter", "Sessions read back.",
              stats.sessions_restored);
  text += One("hearth_sessions_restored_bytes_total", "counter", "Their bytes.",
              stats.sessions_restored_bytes);
  text +=
      One("hearth_sessions_restored_tokens_total", "counter",
          "Tokens that were not computed again because of that.", stats.sessions_restored_tokens);
  text += One("hearth_sessions_evicted_total", "counter", "Sessions removed for want of room.",
              stats.sessions_evicted);
  text += One("hearth_sessions_evicted_bytes_total", "counter", "Their bytes.",
              stats.sessions_evicted_bytes);
  text += One("hearth_sessions_failed_total", "counter",
              "Sessions that could not be written, or were damaged.", stats.sessions_failed);
  return text;
}

}  // namespace

void Histogram::Add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::Text(const std::string& name, const std::string& help) const {
  std::string text = Head(name, "histogram", help);
  uint64_t below = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    below += counts_[i];
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], below);
  }
  below += counts_.back();
  text += fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n", name, below);
  return text + fmt::format("{}_sum {}\n{}_count {}\n", name, sum_, name, below);
}

void Metrics::CountResponse(const std::string& endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{endpoint, status}];
}

void Metrics::AddTimeToFirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}

void Metrics::AddTimeBetweenTokens(double seconds) {
  const std::lock_guard lock(mutex_);
  between_tokens_.Add(seconds);
}

void Metrics::AddConnections(int change) {
  const std::lock_guard lock(mutex_);
  connections_ += change;
}

std::string Metrics::Text(const api::ModelInfo& info, const api::Stats& stats) const {
  const std::lock_guard lock(mutex_);
  std::string text =
      Head("hearth_responses_total", "counter", "Responses, by endpoint and status.");
  for (const auto& [key, count] : responses_) {
    text += fmt::format("hearth_responses_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                        Escaped(key.first), key.second, count);
  }
  text += One("hearth_connections", "gauge", "Open connections.", connections_);
  text += first_token_.Text("hearth_time_to_first_token_seconds",
                            "From a request's arrival to its first token.");
  text += between_tokens_.Text("hearth_time_between_tokens_seconds",
                               "From a token of a request to its next.");
  text += One("hearth_model_fault", "gauge",
              "1 where the last pass failed of the model's file or device.",
              stats.fault.empty() ? 0 : 1);
  return text + Work(stats) + Reads(stats) + Memory(info, stats) + Sessions(stats);
}

}  // namespace hearth::serve
