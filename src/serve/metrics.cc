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

using Labels = std::vector<std::pair<std::string, std::string>>;

// {model="a",state="b"}; nothing where there are no labels. A model without a name has none.
std::string LabelText(const ModelState& model, const Labels& more = {}) {
  Labels labels;
  if (!model.label.empty()) labels.emplace_back("model", model.label);
  labels.insert(labels.end(), more.begin(), more.end());
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", name, Escaped(value));
  }
  return text.empty() ? text : text + "}";
}

// A number of each model: `of` takes api::Stats.
template <typename Fn>
std::string Each(const ModelsState& state, const std::string& name, const char* type,
                 const std::string& help, Fn of) {
  std::string text = Head(name, type, help);
  for (const ModelState& model : state.models) {
    text += fmt::format("{}{} {}\n", name, LabelText(model), of(model.stats));
  }
  return text;
}

std::string Memory(const ModelsState& state) {
  const std::string bytes = "hearth_memory_bytes", pages = "hearth_kv_pages";
  std::string text = Head(bytes, "gauge", "Memory that the ledger holds, by purpose.");
  if (state.counts) {
    text += fmt::format("{}{{purpose=\"program\"}} {}\n", bytes, state.counts->program_bytes);
    text += fmt::format("{}{{purpose=\"loading\"}} {}\n", bytes, state.counts->moving_bytes);
  }
  for (const ModelState& model : state.models) {
    for (const auto& [purpose, held] : model.stats.ledger) {
      text += fmt::format("{}{} {}\n", bytes, LabelText(model, {{"purpose", purpose}}), held);
    }
  }
  text += One("hearth_memory_limit_bytes", "gauge", "The memory limit.", state.memory_limit_bytes);
  text += One("hearth_resident_bytes", "gauge", "Resident memory of the process.",
              state.resident_bytes);
  text += Head(pages, "gauge", "Pages of the KV cache, of 64 tokens each.");
  for (const ModelState& model : state.models) {
    const std::pair<const char*, int64_t> states[] = {{"all", model.stats.kv_pages},
                                                      {"free", model.stats.kv_pages_free},
                                                      {"promised", model.stats.kv_pages_promised},
                                                      {"flash", model.stats.kv_pages_on_flash}};
    for (const auto& [name, count] : states) {
      text += fmt::format("{}{} {}\n", pages, LabelText(model, {{"state", name}}), count);
    }
  }
  return text;
}

std::string Work(const ModelsState& state) {
  std::string text;
  text += Each(state, "hearth_requests_running", "gauge", "Requests that are computed together.",
               [](const api::Stats& stats) { return stats.running; });
  text += Each(state, "hearth_requests_waiting", "gauge", "Requests in the queue.",
               [](const api::Stats& stats) { return stats.waiting; });
  text +=
      Each(state, "hearth_prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
           [](const api::Stats& stats) { return stats.prompt_tokens; });
  text += Each(state, "hearth_reused_tokens_total", "counter",
               "Tokens of prompts that were in the KV cache already.",
               [](const api::Stats& stats) { return stats.reused_tokens; });
  text +=
      Each(state, "hearth_generated_tokens_total", "counter", "Tokens computed in decode passes.",
           [](const api::Stats& stats) { return stats.generated_tokens; });
  text += Each(state, "hearth_prefill_seconds_total", "counter", "Time in passes over prompts.",
               [](const api::Stats& stats) { return stats.prefill_seconds; });
  text += Each(state, "hearth_decode_seconds_total", "counter", "Time in decode passes.",
               [](const api::Stats& stats) { return stats.decode_seconds; });
  text += Each(state, "hearth_prefill_passes_total", "counter", "Passes over prompts.",
               [](const api::Stats& stats) { return stats.prefill_passes; });
  text += Each(state, "hearth_decode_passes_total", "counter", "Decode passes.",
               [](const api::Stats& stats) { return stats.decode_passes; });
  text += Each(state, "hearth_failed_passes_total", "counter", "Passes that failed.",
               [](const api::Stats& stats) { return stats.failed_passes; });
  text += Each(state, "hearth_prefill_tokens_per_second", "gauge",
               "Prompt tokens per second of passes.", [](const api::Stats& stats) {
                 return PerSecond(stats.prompt_tokens, stats.prefill_seconds);
               });
  text += Each(state, "hearth_decode_tokens_per_second", "gauge",
               "Generated tokens per second of passes.", [](const api::Stats& stats) {
                 return PerSecond(stats.generated_tokens, stats.decode_seconds);
               });
  return text;
}

std::string Reads(const ModelsState& state) {
  const std::string neurons = "hearth_neurons_total";
  std::string text =
      Head(neurons, "counter", "What decoding asked for of streamed FFNs, by where it was.");
  for (const ModelState& model : state.models) {
    const std::pair<const char*, int64_t> places[] = {{"pinned", model.stats.neurons_pinned},
                                                      {"cached", model.stats.neurons_cached},
                                                      {"storage", model.stats.neurons_read}};
    for (const auto& [place, count] : places) {
      text += fmt::format("{}{} {}\n", neurons, LabelText(model, {{"place", place}}), count);
    }
  }
  text += Each(state, "hearth_hit_ratio", "gauge", "Share of it that was in memory.",
               [](const api::Stats& stats) { return stats.hit_rate(); });
  text += Each(state, "hearth_read_bytes_total", "counter", "Bytes read from the model's file.",
               [](const api::Stats& stats) { return stats.bytes_read; });
  text +=
      Each(state, "hearth_decode_read_bytes_total", "counter", "Of them, read by decode passes.",
           [](const api::Stats& stats) { return stats.decode_bytes_read; });
  text += Each(state, "hearth_decode_reads_total", "counter", "Reads of decode passes.",
               [](const api::Stats& stats) { return stats.decode_reads; });
  return text;
}

std::string Sessions(const ModelsState& state) {
  std::string text;
  text += Each(state, "hearth_sessions", "gauge", "Files in the session folder.",
               [](const api::Stats& stats) { return stats.sessions; });
  text += Each(state, "hearth_session_bytes", "gauge", "Their bytes.",
               [](const api::Stats& stats) { return stats.session_bytes; });
  text += Each(state, "hearth_sessions_saved_total", "counter", "Sessions written.",
               [](const api::Stats& stats) { return stats.sessions_saved; });
  text += Each(state, "hearth_sessions_saved_bytes_total", "counter", "Their bytes.",
               [](const api::Stats& stats) { return stats.sessions_saved_bytes; });
  text += Each(state, "hearth_sessions_restored_total", "counter", "Sessions read back.",
               [](const api::Stats& stats) { return stats.sessions_restored; });
  text += Each(state, "hearth_sessions_restored_bytes_total", "counter", "Their bytes.",
               [](const api::Stats& stats) { return stats.sessions_restored_bytes; });
  text += Each(state, "hearth_sessions_restored_tokens_total", "counter",
               "Tokens that were not computed again because of that.",
               [](const api::Stats& stats) { return stats.sessions_restored_tokens; });
  text +=
      Each(state, "hearth_sessions_evicted_total", "counter", "Sessions removed for want of room.",
           [](const api::Stats& stats) { return stats.sessions_evicted; });
  text += Each(state, "hearth_sessions_evicted_bytes_total", "counter", "Their bytes.",
               [](const api::Stats& stats) { return stats.sessions_evicted_bytes; });
  text += Each(state, "hearth_sessions_failed_total", "counter",
               "Sessions that could not be written, or were damaged.",
               [](const api::Stats& stats) { return stats.sessions_failed; });
  return text;
}

std::string Loading(const ModelsState& state) {
  if (!state.counts) return "";
  std::string text;
  text += One("hearth_models_loaded", "gauge", "Models in memory.", state.models.size());
  text += One("hearth_models_waiting", "gauge", "Requests that wait for their model.",
              state.counts->waiting);
  text += One("hearth_model_loads_total", "counter", "Models loaded.", state.counts->loads);
  text += One("hearth_model_failed_loads_total", "counter", "Models that could not be loaded.",
              state.counts->failed_loads);
  text += One("hearth_model_unloads_total", "counter", "Models unloaded.", state.counts->unloads);
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

std::string Metrics::Text(const ModelsState& state) const {
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
  text += Each(state, "hearth_model_fault", "gauge",
               "1 where the last pass failed of the model's file or device.",
               [](const api::Stats& stats) { return stats.fault.empty() ? 0 : 1; });
  return text + Work(state) + Reads(state) + Memory(state) + Sessions(state) + Loading(state);
}

}  // namespace hearth::serve
