#include "http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace hearth {

std::vector<nlohmann::json> HttpResponse::Events() const {
  constexpr std::string_view kStart = "data: ", kEnd = "\n\n", kDone = "[DONE]";
  std::vector<nlohmann::json> events;
  bool is_done = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find(kEnd, at);
    if (end == std::string::npos || body.compare(at, kStart.size(), kStart) != 0) {
      ADD_FAILURE() << "no event: " << body.substr(at);
      return events;
    }
    const std::string data = body.substr(at + kStart.size(), end - at - kStart.size());
    EXPECT_FALSE(is_done) << "nothing follows [DONE]";
    is_done = data == kDone;
    if (!is_done) events.push_back(nlohmann::json::parse(data));
    at = end + kEnd.size();
  }
  EXPECT_TRUE(is_done) << body;
  return events;
}

HttpClient::HttpClient(uint16_t port) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience = {.tv_sec = 30, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    fd_ = -1;
  }
}

HttpClient::~HttpClient() {
  if (fd_ >= 0) close(fd_);
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string HttpClient::ReadSome() {
  std::array<char, 16384> buffer;
  const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
  return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : std::string();
}

void HttpClient::CloseWriting() { shutdown(fd_, SHUT_WR); }

std::optional<std::string> HttpClient::ReadLine() {
  size_t end = 0;
  while ((end = unread_.find("\r\n")) == std::string::npos) {
    const std::string more = ReadSome();
    if (more.empty()) return std::nullopt;
    unread_ += more;
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 2);
  return line;
}

bool HttpClient::ReadBytes(size_t count, std::string& to) {
  while (unread_.size() < count) {
    const std::string more = ReadSome();
    if (more.empty()) return false;
    unread_ += more;
  }
  to += unread_.substr(0, count);
  unread_.erase(0, count);
  return true;
}

HttpResponse HttpClient::Read() {
  HttpResponse response;
  const auto first = ReadLine();
  if (!first || first->size() < 12) return {};
  const int status = std::stoi(first->substr(9, 3));
  for (auto line = ReadLine(); line && !line->empty(); line = ReadLine()) {
    const size_t colon = line->find(':');
    std::string name = line->substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return tolower(c); });
    response.headers[name] = line->substr(line->find_first_not_of(' ', colon + 1));
  }
  if (status == 100) return Read();
  if (response.headers.count("content-length") > 0) {
    if (!ReadBytes(std::stoul(response.headers["content-length"]), response.body)) return {};
  } else if (response.headers.count("transfer-encoding") > 0) {
    for (;;) {
      const auto size = ReadLine();
      if (!size) return {};
      const size_t count = std::stoul(*size, nullptr, 16);
      if (!ReadBytes(count, response.body) || !ReadLine()) return {};
      if (count == 0) break;
    }
  } else {
    response.body = std::exchange(unread_, {});
    for (std::string more = ReadSome(); !more.empty(); more = ReadSome()) response.body += more;
  }
  response.status = status;
  return response;
}

HttpResponse HttpClient::Get(const std::string& path, const std::string& headers) {
  if (!Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n")) return {};
  return Read();
}

bool HttpClient::SendPost(const std::string& path, const nlohmann::json& body,
                          const std::string& headers) {
  const std::string text = body.dump();
  return Send("POST " + path +
              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers +
              "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
}

HttpResponse HttpClient::Post(const std::string& path, const nlohmann::json& body,
                              const std::string& headers) {
  if (!SendPost(path, body, headers)) return {};
  return Read();
}

}  // namespace hearth
