// A hub on this machine: the API, redirects to a store on another host name and port, ranges, and
// the ways in which transfers break.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hearth {

// What the store does with one request for a file.
struct StoreFault {
  enum class Kind {
    kNone,
    kCut,         // sends `number` bytes of the body and closes
    kFlip,        // changes the byte at `number` of the file
    kStatus,      // answers with status `number`
    kNoRange,     // sends the whole file, status 200
    kMore,        // sends `number` bytes more than there are
    kWrongRange,  // begins `number` bytes later
    kHold,        // sends `number` bytes, then nothing until Release
  };
  Kind kind = Kind::kNone;
  uint64_t number = 0;
};

class HubServer {
 public:
  struct Request {
    bool is_to_store = false;
    std::string path;
    std::string range;          // of the header; empty: none
    std::string authorization;  // the same
  };

  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string endpoint() const;  // http://127.0.0.1:PORT

  // Adds or replaces a file. is_large: kept by SHA-256 in the store, as the hub does; a small one
  // comes from the hub itself and has git's hash.
  void Add(const std::string& repository, const std::string& path, const std::string& content,
           bool is_large = true);
  // Files of the repository need this token; no token opens them where it is empty.
  void Gate(const std::string& repository, const std::string& token);
  // Answers this path of the hub with a status and a body, in place of what is right.
  void Answer(const std::string& path, int status, const std::string& body);
  // Redirects every request for a file to itself.
  void RedirectForever() { redirects_forever_ = true; }

  void Fail(std::vector<StoreFault> faults);  // of the next requests to the store, in turn
  void Release();                             // of all transfers that are held
  // Waits until this many transfers are held.
  void AwaitHeld(int count);

  std::vector<Request> requests() const;
  // Ranges that the store was asked for, in turn, and forgets all requests.
  std::vector<std::string> TakeRanges();

 private:
  struct File {
    std::string content;
    std::string digest;
    bool is_large = true;
  };
  struct Reply {
    int status = 200;
    std::string headers;
    std::string body;
    uint64_t claimed_bytes = 0;  // Content-Length
    bool holds = false;          // after the body
  };

  void Listen();
  void Serve(int connection, bool is_store);
  Reply ReplyTo(const Request& request);
  Reply ReplyOfApi(const std::string& repository);
  Reply ReplyOfHub(const Request& request);
  Reply ReplyOfStore(const Request& request);
  Reply ReplyWithFile(const File& file, const Request& request, const StoreFault& fault);
  const File* FindFile(const std::string& digest) const;
  void Hold();

  int listeners_[2] = {-1, -1};  // of the hub and of the store
  uint16_t ports_[2] = {0, 0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::map<std::string, File>> repositories_;
  std::map<std::string, std::string> gates_;
  std::map<std::string, std::pair<int, std::string>> answers_;
  std::deque<StoreFault> faults_;
  std::vector<Request> requests_;
  int held_ = 0;
  uint64_t releases_ = 0;
  bool is_ending_ = false;
  std::atomic<bool> redirects_forever_{false};
  std::vector<std::thread> threads_;
  std::thread listening_;
};

}  // namespace hearth
