#include "load/watch.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
namespace hearth::load {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

asio::awaitable<std::string> GetMetrics(Link& link, const HttpRequest& request) {
  co_await link.Open();
  co_await http::async_write(link.stream(), request, asio::use_awaitable);
  http::response<http::string_body> response;
  co_await http::async_read(link.stream(), link.buffer(), response, asio::use_awaitable);
  link.Finish(response.keep_alive());
  if (response.result() != http::status::ok) {
    throw std::runtime_error("http " + std::to_string(response.result_int()));
  }
  co_return response.body();
}

void Note(const std::map<std::string, double>& values, double seconds, Sightings& sightings) {
  for (const auto& [name, value] : values) sightings.series[name].push_back({seconds, value});
}

}  // namespace

std::map<std::string, double> SeriesOf(const std::map<std::string, double>& metrics) {
  static const std::map<std::string, std::string> kKept = {
      {"hearth_resident_bytes", "resident_bytes"},
      {"hearth_connections", "connections"},
      {"hearth_requests_running", "requests_running"},
      {"hearth_requests_waiting", "requests_waiting"},
      {"hearth_kv_pages{state=\"free\"}", "kv_pages_free"},
      {"hearth_kv_pages{state=\"promised\"}", "kv_pages_promised"},
      {"hearth_generated_tokens_total", "generated_tokens"},
      {"hearth_decode_passes_total", "decode_passes"},
      {"hearth_decode_reads_total", "decode_reads"},
      {"hearth_decode_read_bytes_total", "decode_read_bytes"},
      {"hearth_neurons_total{place=\"pinned\"}", "neurons_pinned"},
      {"hearth_neurons_total{place=\"cached\"}", "neurons_cached"},
      {"hearth_neurons_total{place=\"storage\"}", "neurons_read"}};
  std::map<std::string, double> series;
  for (const auto& [name, value] : metrics) {
    if (const auto kept = kKept.find(name); kept != kKept.end()) series[kept->second] = value;
    if (name.rfind("hearth_memory_bytes{", 0) == 0) series["ledger_bytes"] += value;
  }
  return series;
}

std::map<std::string, double> SeriesOfProcess(int pid) {
  const std::filesystem::path folder = "/proc/" + std::to_string(pid);
  static const std::map<std::string, std::pair<std::string, double>> kFields = {
      {"VmRSS:", {"process_rss_bytes", 1024}},
      {"RssAnon:", {"process_anonymous_bytes", 1024}},
      {"Threads:", {"process_threads", 1}}};
  std::map<std::string, double> series;
  std::ifstream status(folder / "status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string field;
    double value = 0;
    words >> field >> value;
    if (const auto found = kFields.find(field); found != kFields.end()) {
      series[found->second.first] = value * found->second.second;
    }
  }
  std::error_code ignored;
  double files = 0;
  for (auto file = std::filesystem::directory_iterator(folder / "fd", ignored);
       !ignored && file != std::filesystem::directory_iterator(); file.increment(ignored)) {
    ++files;
  }
  if (files > 0) series["process_open_files"] = files;
  return series;
}

asio::awaitable<void> Watch(const Target& target, const Window& window,
                            std::chrono::milliseconds interval, std::optional<int> pid,
                            Sightings& sightings) {
  const HttpRequest request = MakeRequest(target, http::verb::get, "/metrics", "");
  Link link(target);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  Clock::time_point next = window.start;
  for (bool is_last = false; !is_last; next += interval) {
    is_last = next >= window.end;
    timer.expires_at(std::min(next, window.end));
    co_await timer.async_wait(asio::use_awaitable);
    const double seconds = std::chrono::duration<double>(Clock::now() - window.start).count();
    std::string error;
    try {
      const std::string text = co_await GetMetrics(link, request);
      Note(SeriesOf(ParseMetrics(text)), seconds, sightings);
    } catch (const std::exception& thrown) {
      error = std::string("metrics: ") + thrown.what();
      link.Drop();
    }
    if (!error.empty()) ++sightings.errors[error];
    if (!pid) continue;
    const auto process = SeriesOfProcess(*pid);
    Note(process, seconds, sightings);
    if (process.empty()) ++sightings.errors["process: it is gone"];
  }
}

}  // namespace hearth::load
