#include "hub_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "hub/digest.h"

namespace hearth {
namespace {

constexpr std::string_view kCommit = "0123456789abcdef0123456789abcdef01234567";
constexpr std::string_view kStorePath = "/blob/";
constexpr std::string_view kSignature = "?X-Signature=valid";
constexpr std::string_view kApiPath = "/api/models/";
constexpr int kPollMs = 20;

std::string DigestOf(const std::string& content, hub::DigestKind kind) {
  hub::FileDigest digest(kind, content.size());
  digest.Update(std::as_bytes(std::span(content)));
  return digest.Finish();
}

int ListenOn(uint16_t& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd, plain, size), 0);
  EXPECT_EQ(listen(fd, 16), 0);
  EXPECT_EQ(getsockname(fd, plain, &size), 0);
  port = ntohs(address.sin_port);
  return fd;
}

bool SendText(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string ReadHead(int fd) {
  std::string head;
  char piece[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = read(fd, piece, sizeof(piece));
    if (n <= 0) return "";
    head.append(piece, static_cast<size_t>(n));
  }
  return head;
}

std::string HeaderOf(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

// The path of "GET http://host/path HTTP/1.1", as clients send it to proxies, or of "GET /path
// ...".
std::string PathOf(const std::string& head) {
  const size_t begin = head.find(' ') + 1;
  std::string path = head.substr(begin, head.find(' ', begin) - begin);
  constexpr std::string_view kScheme = "http://";
  if (path.starts_with(kScheme)) path.erase(0, path.find('/', kScheme.size()));
  return path;
}

std::string Decoded(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      out += path[i];
      continue;
    }
    out += static_cast<char>(std::stoi(path.substr(i + 1, 2), nullptr, 16));
    i += 2;
  }
  return out;
}

}  // namespace

HubServer::HubServer() {
  for (int i : {0, 1}) listeners_[i] = ListenOn(ports_[i]);
  listening_ = std::thread([this] { Listen(); });
}

HubServer::~HubServer() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  listening_.join();
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : listeners_) close(fd);
}

std::string HubServer::endpoint() const { return fmt::format("http://127.0.0.1:{}", ports_[0]); }

void HubServer::Add(const std::string& repository, const std::string& path,
                    const std::string& content, bool is_large) {
  const auto kind = is_large ? hub::DigestKind::kSha256 : hub::DigestKind::kGitSha1;
  File file{content, DigestOf(content, kind), is_large};
  const std::lock_guard lock(mutex_);
  repositories_[repository][path] = std::move(file);
}

void HubServer::Gate(const std::string& repository, const std::string& token) {
  const std::lock_guard lock(mutex_);
  gates_[repository] = token;
}

void HubServer::Answer(const std::string& path, int status, const std::string& body) {
  const std::lock_guard lock(mutex_);
  answers_[path] = {status, body};
}

void HubServer::Fail(std::vector<StoreFault> faults) {
  const std::lock_guard lock(mutex_);
  faults_.assign(faults.begin(), faults.end());
}

void HubServer::Release() {
  {
    const std::lock_guard lock(mutex_);
    ++releases_;
  }
  changed_.notify_all();
}

void HubServer::AwaitHeld(int count) {
  std::unique_lock lock(mutex_);
  const bool came =
      changed_.wait_for(lock, std::chrono::seconds(60), [&] { return held_ >= count; });
  EXPECT_TRUE(came) << "no transfer is held";
}

std::vector<HubServer::Request> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> HubServer::TakeRanges() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ranges;
  for (const Request& request : requests_) {
    if (request.is_to_store) ranges.push_back(request.range);
  }
  requests_.clear();
  return ranges;
}

void HubServer::Listen() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
    }
    pollfd wait[2] = {{listeners_[0], POLLIN, 0}, {listeners_[1], POLLIN, 0}};
    if (poll(wait, 2, kPollMs) <= 0) continue;
    for (const int i : {0, 1}) {
      if (wait[i].revents == 0) continue;
      const int connection = accept4(listeners_[i], nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0)
        threads_.emplace_back([this, connection, i] { Serve(connection, i == 1); });
    }
  }
}

// One request a connection.
void HubServer::Serve(int connection, bool is_store) {
  const timeval patience = {5, 0};  // a client that connects and asks nothing
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string head = ReadHead(connection);
  if (!head.empty()) {
    Request request{is_store, PathOf(head), HeaderOf(head, "Range"),
                    HeaderOf(head, "Authorization")};
    request.is_to_store = is_store || request.path.starts_with(kStorePath);  // as a proxy
    const Reply reply = ReplyTo(request);
    SendText(connection,
             fmt::format("HTTP/1.1 {} Some Reason\r\nConnection: close\r\nContent-Length: {}\r\n{}"
                         "\r\n",
                         reply.status, reply.claimed_bytes, reply.headers));
    SendText(connection, reply.body);
    if (reply.holds) Hold();
  }
  close(connection);
}

void HubServer::Hold() {
  std::unique_lock lock(mutex_);
  ++held_;
  changed_.notify_all();
  const uint64_t before = releases_;
  changed_.wait(lock, [&] { return is_ending_ || releases_ != before; });
  --held_;
}

HubServer::Reply HubServer::ReplyTo(const Request& request) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  Reply reply;
  const std::string plain = request.path.substr(0, request.path.find('?'));
  const auto answer = answers_.find(plain);
  if (answer != answers_.end()) {
    reply.status = answer->second.first;
    reply.body = answer->second.second;
  } else if (request.is_to_store) {
    return ReplyOfStore(request);
  } else if (plain.starts_with(kApiPath)) {
    reply = ReplyOfApi(plain.substr(kApiPath.size()));
  } else {
    return ReplyOfHub(request);
  }
  reply.claimed_bytes = reply.body.size();
  return reply;
}

HubServer::Reply HubServer::ReplyOfApi(const std::string& repository) {
  const auto found = repositories_.find(repository);
  if (found == repositories_.end()) {
    return {.status = 401, .headers = "X-Error-Code: RepoNotFound\r\n"};
  }
  nlohmann::json siblings = nlohmann::json::array();
  siblings.push_back({{"rfilename", ".gitattributes"}, {"size", 3}, {"blobId", "unread"}});
  for (const auto& [path, file] : found->second) {
    nlohmann::json entry = {{"rfilename", path}, {"size", file.content.size()}};
    if (file.is_large) {
      entry["lfs"] = {{"sha256", file.digest}, {"size", file.content.size()}, {"pointerSize", 134}};
      entry["blobId"] = std::string(40, 'a');
    } else {
      entry["blobId"] = file.digest;
    }
    siblings.push_back(entry);
  }
  nlohmann::json document = {{"id", repository}, {"sha", kCommit}, {"siblings", siblings}};
  if (gates_.count(repository) > 0) {
    document["gated"] = "auto";
  } else {
    document["gated"] = false;
  }
  return {.body = document.dump()};
}

// OWNER/REPO/resolve/COMMIT/PATH.
HubServer::Reply HubServer::ReplyOfHub(const Request& request) {
  if (redirects_forever_) {
    return {.status = 302, .headers = fmt::format("Location: {}\r\n", request.path)};
  }
  const std::string path = Decoded(request.path).substr(1);
  const std::string middle = fmt::format("/resolve/{}/", kCommit);
  const size_t at = path.find(middle);
  const auto repository = repositories_.find(path.substr(0, at));
  if (at == std::string::npos || repository == repositories_.end()) return {.status = 404};
  const auto file = repository->second.find(path.substr(at + middle.size()));
  if (file == repository->second.end()) {
    return {.status = 404, .headers = "X-Error-Code: EntryNotFound\r\n"};
  }
  const auto gate = gates_.find(repository->first);
  if (gate != gates_.end() &&
      (gate->second.empty() || request.authorization != "Bearer " + gate->second)) {
    return {.status = request.authorization.empty() ? 401 : 403,
            .headers = "X-Error-Code: GatedRepo\r\nX-Error-Message: Access is restricted.\r\n"};
  }
  if (!file->second.is_large) return ReplyWithFile(file->second, request, {});
  return {.status = 302,
          .headers = fmt::format("Location: http://localhost:{}{}{}{}\r\nX-Linked-ETag: \"{}\"\r\n",
                                 ports_[1], kStorePath, file->second.digest, kSignature,
                                 file->second.digest)};
}

HubServer::Reply HubServer::ReplyOfStore(const Request& request) {
  StoreFault fault;
  if (!faults_.empty()) {
    fault = faults_.front();
    faults_.pop_front();
  }
  if (!request.path.ends_with(kSignature)) return {.status = 403};
  const std::string digest = request.path.substr(
      kStorePath.size(), request.path.size() - kStorePath.size() - kSignature.size());
  const File* file = FindFile(digest);
  if (file == nullptr) return {.status = 404};
  if (fault.kind == StoreFault::Kind::kStatus) {
    return {.status = static_cast<int>(fault.number), .headers = "Retry-After: 0\r\n"};
  }
  return ReplyWithFile(*file, request, fault);
}

HubServer::Reply HubServer::ReplyWithFile(const File& file, const Request& request,
                                          const StoreFault& fault) {
  using Kind = StoreFault::Kind;
  const uint64_t size = file.content.size();
  uint64_t begin = 0;
  uint64_t end = size;
  const bool is_part = !request.range.empty() && fault.kind != Kind::kNoRange;
  if (is_part) {
    const size_t dash = request.range.find('-');
    begin = std::stoull(request.range.substr(request.range.find('=') + 1));
    if (dash + 1 < request.range.size()) {
      end = std::min<uint64_t>(size, std::stoull(request.range.substr(dash + 1)) + 1);
    }
    if (begin >= size) return {.status = 416};
  }
  if (fault.kind == Kind::kWrongRange) begin += fault.number;
  Reply reply;
  reply.body = file.content.substr(begin, end - begin);
  if (fault.kind == Kind::kFlip && fault.number >= begin && fault.number < end) {
    reply.body[fault.number - begin] ^= 1;
  }
  if (fault.kind == Kind::kMore) reply.body += std::string(fault.number, 'x');
  reply.claimed_bytes = reply.body.size();
  if (fault.kind == Kind::kCut || fault.kind == Kind::kHold) reply.body.resize(fault.number);
  reply.holds = fault.kind == Kind::kHold;
  if (!is_part) return reply;
  reply.status = 206;
  reply.headers = fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, end - 1, size);
  return reply;
}

const HubServer::File* HubServer::FindFile(const std::string& digest) const {
  for (const auto& [name, files] : repositories_) {
    for (const auto& [path, file] : files) {
      if (file.digest == digest) return &file;
    }
  }
  return nullptr;
}

}  // namespace hearth
