// Reads from web servers through libcurl, which takes proxies from the environment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "hub/system_libraries.h"

namespace hearth::hub {

struct HttpOptions {
  std::string token;    // sent to the host that is asked, never to one that it redirects to
  std::string ca_file;  // of trusted authorities; empty: libcurl's own
  std::string user_agent = "hearth";
  const std::atomic<bool>* cancel = nullptr;
};

struct HttpRequest {
  std::string url;
  // The bytes [begin, end) alone; end 0: to the last one. Nothing: all, without asking for a range.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  std::optional<Range> range;
};

// What the last server of a chain of redirects said.
struct HttpAnswer {
  int status = 0;  // 0: no answer came
  bool was_redirected = false;
  std::string failure;                  // why the transfer did not reach its end; empty: it did
  bool is_transient = false;            // of a failure: may not happen again
  uint64_t range_begin = 0;             // of the body: 0 unless the status is 206
  std::optional<uint64_t> total_bytes;  // of the whole file, where it says so
  int retry_after_s = 0;
  std::string error_code;  // X-Error-Code and X-Error-Message, as the hub sends them
  std::string error_message;

  bool is_done() const { return failure.empty() && (status == 200 || status == 206); }
};

// Takes a piece of the body of an answer with status 200 or 206; what it throws ends the transfer
// and leaves Get.
using HttpSink = std::function<void(const HttpAnswer&, std::span<const std::byte>)>;

// Keeps connections for the next request. Not thread-safe.
class HttpClient {
 public:
  // Throws as LoadCurl does.
  explicit HttpClient(HttpOptions options);

  // Follows up to five redirects, never from https to http. Ends a transfer that stands still for
  // a minute. Throws Error(kCancelled) where the flag of the options is set.
  HttpAnswer Get(const HttpRequest& request, const HttpSink& sink);

 private:
  template <typename Value>
  void Set(CURLoption option, Value value);
  void Prepare(const HttpRequest& request);

  HttpOptions options_;
  const CurlFunctions& curl_;
  std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> handle_;
};

}  // namespace hearth::hub
