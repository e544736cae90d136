// `hearth serve`, started on a free port and stopped again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "http_client.h"

namespace hearth {

class ServerProcess {
 public:
  // Starts `hearth serve MODEL --port 0 MORE...` and waits until it listens; no MODEL where it is
  // empty. keeps_sessions: where
  // `more` does not say otherwise, in its usual folder, which XDG_STATE_HOME must name; else
  // nowhere.
  ServerProcess(const std::string& model, const std::vector<std::string>& more,
                bool keeps_sessions = false);
  ~ServerProcess();

  uint16_t port() const { return port_; }
  HttpClient Connect() const { return HttpClient(port_); }
  // A value of /metrics, -1 where there is none of that name (with its labels).
  double Metric(const std::string& name, const std::string& headers = "") const;
  // Waits until a metric has a value, at most ten seconds; whether it has.
  bool WaitFor(const std::string& metric, double value) const;
  int64_t ResidentBytes() const;

  void Signal(int number) const;
  // Waits for the end: the exit code, 128 + signal where it was killed.
  int Wait();
  // What it said until it listened.
  const std::string& notices() const { return notices_; }
  // What it says from then on: up to where `words` are in it, or to its end; nothing more where it
  // says nothing for twenty seconds.
  std::string ReadNotices(const std::string& words) const;

 private:
  pid_t pid_ = -1;
  int errors_ = -1;  // its standard error
  uint16_t port_ = 0;
  std::string notices_;
};

}  // namespace hearth
