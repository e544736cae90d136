#include "hub/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace hearth::hub {
namespace {

constexpr long kMostRedirects = 5;
constexpr long kConnectSeconds = 30;
constexpr long kStandstillSeconds = 60;  // with less than a byte per second
constexpr size_t kMostValueBytes = 1024;
constexpr int kMostRetryAfterSeconds = 60;

// One transfer, as the callbacks see it.
struct Transfer {
  HttpAnswer answer;
  const HttpSink* sink = nullptr;
  const std::atomic<bool>* cancel = nullptr;
  std::exception_ptr thrown;
};

template <typename Number>
bool ParseWhole(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// "bytes 100-199/1000"; "*" for a total that is not known.
void ReadContentRange(std::string_view value, HttpAnswer& answer) {
  constexpr std::string_view kUnit = "bytes ";
  if (!value.starts_with(kUnit)) return;
  value.remove_prefix(kUnit.size());
  const size_t dash = value.find('-');
  const size_t slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos) return;
  uint64_t total = 0;
  if (!ParseWhole(value.substr(0, dash), answer.range_begin)) return;
  if (ParseWhole(value.substr(slash + 1), total)) answer.total_bytes = total;
}

void ReadHeader(std::string_view line, HttpAnswer& answer) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = Lower(line.substr(0, colon));
  std::string_view value = line.substr(colon + 1);
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  value = value.substr(0, kMostValueBytes);
  if (name == "content-range") ReadContentRange(value, answer);
  if (name == "x-error-code") answer.error_code = value;
  if (name == "x-error-message") answer.error_message = Printable(value, 300);
  if (name == "retry-after" && ParseWhole(value, answer.retry_after_s)) {
    answer.retry_after_s = std::clamp(answer.retry_after_s, 0, kMostRetryAfterSeconds);
  }
}

// "HTTP/1.1 206 Partial Content" begins the headers of an answer; there is one per redirect.
size_t OnHeader(char* data, size_t size, size_t count, void* context) noexcept {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    transfer.answer = {};
    const size_t at = line.find(' ');
    if (at != std::string_view::npos) {
      ParseWhole(line.substr(at + 1, 3), transfer.answer.status);
    }
  } else {
    ReadHeader(line, transfer.answer);
  }
  return size * count;
}

size_t OnBody(char* data, size_t size, size_t count, void* context) noexcept {
  auto& transfer = *static_cast<Transfer*>(context);
  const HttpAnswer& answer = transfer.answer;
  if (answer.status != 200 && answer.status != 206) return size * count;
  try {
    (*transfer.sink)(answer, std::as_bytes(std::span(data, size * count)));
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
  return size * count;
}

int OnProgress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
  const auto& transfer = *static_cast<const Transfer*>(context);
  return transfer.cancel != nullptr && *transfer.cancel ? 1 : 0;
}

bool IsTransient(CURLcode code) {
  constexpr std::array kTransient = {
      CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PARTIAL_FILE,
      CURLE_OPERATION_TIMEDOUT,   CURLE_GOT_NOTHING,     CURLE_SSL_CONNECT_ERROR,
      CURLE_SEND_ERROR,           CURLE_RECV_ERROR,      CURLE_HTTP2,
      CURLE_HTTP2_STREAM};
  return std::find(kTransient.begin(), kTransient.end(), code) != kTransient.end();
}

}  // namespace

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), curl_(LoadCurl()), handle_(curl_.init(), curl_.cleanup) {
  if (handle_ == nullptr) throw Error(ErrorCode::kInternal, "libcurl", "cannot be started");
}

template <typename Value>
void HttpClient::Set(CURLoption option, Value value) {
  const CURLcode code = curl_.set_option(handle_.get(), option, value);
  if (code == CURLE_OK) return;
  throw Error(ErrorCode::kUnsupported, "libcurl",
              fmt::format("cannot be used, it may be too old (option {}: {})",
                          static_cast<int>(option), curl_.describe(code)));
}

void HttpClient::Prepare(const HttpRequest& request) {
  curl_.reset(handle_.get());
  Set(CURLOPT_URL, request.url.c_str());
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_PROTOCOLS_STR, "http,https");
  Set(CURLOPT_FOLLOWLOCATION, 1L);
  Set(CURLOPT_MAXREDIRS, kMostRedirects);
  Set(CURLOPT_REDIR_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http,https");
  Set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  Set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  Set(CURLOPT_LOW_SPEED_TIME, kStandstillSeconds);
  Set(CURLOPT_USERAGENT, options_.user_agent.c_str());
  if (!options_.ca_file.empty()) Set(CURLOPT_CAINFO, options_.ca_file.c_str());
  if (!options_.token.empty()) {
    // libcurl drops it where a redirect leads to another host, port or protocol.
    Set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    Set(CURLOPT_XOAUTH2_BEARER, options_.token.c_str());
  }
  if (request.range) {
    const std::string range = request.range->end == 0 ? fmt::format("{}-", request.range->begin)
                                                      : fmt::format("{}-{}", request.range->begin,
                                                                    request.range->end - 1);
    Set(CURLOPT_RANGE, range.c_str());
  }
}

HttpAnswer HttpClient::Get(const HttpRequest& request, const HttpSink& sink) {
  Transfer transfer;
  transfer.sink = &sink;
  transfer.cancel = options_.cancel;
  char reason[CURL_ERROR_SIZE] = {};
  Prepare(request);
  Set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  Set(CURLOPT_HEADERFUNCTION, &OnHeader);
  Set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  Set(CURLOPT_WRITEFUNCTION, &OnBody);
  Set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  Set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  Set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  Set(CURLOPT_NOPROGRESS, 0L);
  const CURLcode code = curl_.perform(handle_.get());
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    throw Error(ErrorCode::kCancelled, "", "interrupted");
  }
  HttpAnswer answer = std::move(transfer.answer);
  long redirects = 0;
  curl_.get_info(handle_.get(), CURLINFO_REDIRECT_COUNT, &redirects);
  answer.was_redirected = redirects > 0;
  if (code != CURLE_OK) {
    answer.failure = Printable(reason[0] != 0 ? reason : curl_.describe(code), 200);
    answer.is_transient = IsTransient(code);
  }
  curl_.set_option(handle_.get(), CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  return answer;
}

}  // namespace hearth::hub
