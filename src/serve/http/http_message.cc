#include "serve/http/http_message.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/beast/core/string.hpp>
#include <chrono>
#include <string_view>

namespace hearth::serve {
namespace {

namespace http = boost::beast::http;

constexpr unsigned kVersion11 = 11;

const char* Reason(Status status) {
  switch (status) {
    case Status::kOk:
      return "OK";
    case Status::kNoContent:
      return "No Content";
    case Status::kBadRequest:
      return "Bad Request";
    case Status::kUnauthorized:
      return "Unauthorized";
    case Status::kForbidden:
      return "Forbidden";
    case Status::kNotFound:
      return "Not Found";
    case Status::kMethodNotAllowed:
      return "Method Not Allowed";
    case Status::kRequestTimeout:
      return "Request Timeout";
    case Status::kPayloadTooLarge:
      return "Payload Too Large";
    case Status::kUnsupportedMediaType:
      return "Unsupported Media Type";
    case Status::kExpectationFailed:
      return "Expectation Failed";
    case Status::kTooManyRequests:
      return "Too Many Requests";
    case Status::kHeaderTooLarge:
      return "Request Header Fields Too Large";
    case Status::kInternal:
      return "Internal Server Error";
    case Status::kNotImplemented:
      return "Not Implemented";
    case Status::kUnavailable:
      return "Service Unavailable";
  }
  return "Unknown";
}

std::string Value(const boost::beast::string_view& value) { return {value.data(), value.size()}; }

// Of a hexadecimal digit; -1 of others.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// With "%20" and the like as the bytes that they stand for.
std::string Decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool has_digits = text[i] == '%' && i + 2 < text.size() && DigitOf(text[i + 1]) >= 0 &&
                            DigitOf(text[i + 2]) >= 0;
    if (!has_digits) {
      decoded += text[i];
      continue;
    }
    decoded += static_cast<char>(DigitOf(text[i + 1]) * 16 + DigitOf(text[i + 2]));
    i += 2;
  }
  return decoded;
}

// "example.com:8080" and "[::1]:8080" without the port.
std::string HostName(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

std::string Lines(const HeaderFields& fields) {
  std::string lines;
  for (const auto& [name, value] : fields) lines += name + ": " + value + "\r\n";
  return lines;
}

std::string CommonFields(bool keep_alive) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("Date: {:%a, %d %b %Y %H:%M:%S} GMT\r\nServer: hearth\r\nConnection: {}\r\n",
                     fmt::gmtime(now), keep_alive ? "keep-alive" : "close");
}

}  // namespace

RequestHead ReadRequestHead(const HttpRequestHead& message) {
  RequestHead head = {.method = Value(message.method_string()),
                      .target = Value(message.target()),
                      .authorization = Value(message[http::field::authorization]),
                      .api_key = Value(message["X-Api-Key"]),
                      .host = Value(message[http::field::host]),
                      .origin = Value(message[http::field::origin]),
                      .asked_method = Value(message[http::field::access_control_request_method]),
                      .asked_fields = Value(message[http::field::access_control_request_headers])};
  const std::string scheme = "http://";
  if (boost::beast::iequals(head.target.substr(0, scheme.size()), scheme)) {
    const size_t path =
        std::min(head.target.find_first_of("/?", scheme.size()), head.target.size());
    head.host = head.target.substr(scheme.size(), path - scheme.size());
    head.target.erase(0, path);
    if (head.target.empty() || head.target.front() != '/') head.target.insert(0, 1, '/');
  }
  return head;
}

void CheckRequestHead(const HttpRequestHead& message) {
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && message.version() >= kVersion11)) {
    throw RequestError(Status::kBadRequest, "a request names its host once");
  }
  const size_t codings = message.count(http::field::transfer_encoding);
  if (codings > 1 || (codings == 1 &&
                      !boost::beast::iequals(message[http::field::transfer_encoding], "chunked"))) {
    throw RequestError(Status::kNotImplemented, "of transfer codings only chunked is known here");
  }
  if (codings == 1 && message.version() < kVersion11) {
    throw RequestError(Status::kBadRequest, "HTTP/1.0 has no transfer codings");
  }
  const auto encoding = message[http::field::content_encoding];
  if (!encoding.empty() && !boost::beast::iequals(encoding, "identity")) {
    throw RequestError(Status::kUnsupportedMediaType, "bodies are taken as they are, not encoded");
  }
  const auto expected = message[http::field::expect];
  if (!expected.empty() && message.version() >= kVersion11 && !ExpectsContinue(message)) {
    throw RequestError(Status::kExpectationFailed, "only 100-continue can be expected");
  }
}

bool ExpectsContinue(const HttpRequestHead& message) {
  return message.version() >= kVersion11 &&
         boost::beast::iequals(message[http::field::expect], "100-continue");
}

std::string PathOfTarget(const std::string& target) {
  return Decoded(target.substr(0, target.find('?')));
}

std::string QueryOfTarget(const std::string& target, std::string_view name) {
  size_t at = target.find('?');
  while (at != std::string::npos) {
    const size_t end = target.find('&', ++at);
    const std::string_view part =
        std::string_view(target).substr(at, end == std::string::npos ? end : end - at);
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos && part.substr(0, equals) == name) {
      return Decoded(part.substr(equals + 1));
    }
    at = end;
  }
  return "";
}

bool IsThisMachine(const std::string& host) {
  std::string name = HostName(host);
  if (!name.empty() && name.back() == '.') name.pop_back();
  if (name.empty() || name == "[::1]" || boost::beast::iequals(name, "localhost")) return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address_v4(name, error);
  return !error && address.is_loopback();
}

std::string ResponseHead(const Response& response, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n{}", static_cast<int>(response.status),
                                 Reason(response.status), CommonFields(keep_alive));
  if (response.status != Status::kNoContent) {
    head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", response.content_type,
                        response.body.size());
  }
  return head + Lines(response.headers) + "\r\n";
}

std::string StreamHead(bool is_chunked, bool keep_alive, const HeaderFields& headers) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\n{}Content-Type: text/event-stream; charset=utf-8\r\n"
      "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n{}{}\r\n",
      CommonFields(keep_alive), is_chunked ? "Transfer-Encoding: chunked\r\n" : "", Lines(headers));
}

}  // namespace hearth::serve
