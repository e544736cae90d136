// A small HTTP client over plain sockets, for what well-behaved clients never do too.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

struct HttpResponse {
  int status = 0;                              // 0: the connection ended before a whole response
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined

  nlohmann::json Json() const { return nlohmann::json::parse(body); }
  // The documents of a stream of events, without the last, [DONE], which must be there.
  std::vector<nlohmann::json> Events() const;
};

// One connection to a port of this machine. Waits at most half a minute for anything.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port);
  HttpClient(HttpClient&& other) noexcept : fd_(other.fd_), unread_(std::move(other.unread_)) {
    other.fd_ = -1;
  }
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient();

  bool is_connected() const { return fd_ >= 0; }
  // False where the other side is gone.
  bool Send(std::string_view bytes);
  HttpResponse Read();
  // Bytes as they come: at least one, or none at the end.
  std::string ReadSome();
  void CloseWriting();

  HttpResponse Get(const std::string& path, const std::string& headers = "");
  HttpResponse Post(const std::string& path, const nlohmann::json& body,
                    const std::string& headers = "");
  // Sends a request and does not wait for the answer.
  bool SendPost(const std::string& path, const nlohmann::json& body,
                const std::string& headers = "");

 private:
  std::optional<std::string> ReadLine();
  bool ReadBytes(size_t count, std::string& to);

  int fd_ = -1;
  std::string unread_;
};

}  // namespace hearth
