#include "server_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace hearth {

ServerProcess::ServerProcess(const std::string& model, const std::vector<std::string>& more,
                             bool keeps_sessions) {
  std::vector<std::string> arguments = {HEARTH_PROGRAM, "serve", "--port", "0"};
  if (!model.empty()) arguments.push_back(model);
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (std::find(more.begin(), more.end(), "--session-dir") == more.end() && !keeps_sessions) {
    arguments.insert(arguments.end(), {"--session-dir", "none"});
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::array<int, 2> pipe_ends = {-1, -1};
  EXPECT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  EXPECT_EQ(posix_spawn(&pid_, HEARTH_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  errors_ = pipe_ends[0];
  const std::string before = "://127.0.0.1:";
  std::array<char, 512> buffer;
  for (;;) {
    const ssize_t got = read(errors_, buffer.data(), buffer.size());
    if (got <= 0) break;
    notices_.append(buffer.data(), static_cast<size_t>(got));
    const size_t at = notices_.find(before);
    if (at == std::string::npos || notices_.find('\n', at) == std::string::npos) continue;
    port_ = static_cast<uint16_t>(std::stoi(notices_.substr(at + before.size())));
    break;
  }
  EXPECT_NE(port_, 0) << notices_;
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  close(errors_);
}

double ServerProcess::Metric(const std::string& name, const std::string& headers) const {
  std::istringstream lines(Connect().Get("/metrics", headers).body);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + " ", 0) == 0) return std::stod(line.substr(name.size() + 1));
  }
  return -1;
}

bool ServerProcess::WaitFor(const std::string& metric, double value) const {
  for (int i = 0; i < 1000; ++i) {
    if (Metric(metric) == value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

int64_t ServerProcess::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

void ServerProcess::Signal(int number) const { kill(pid_, number); }

std::string ServerProcess::ReadNotices(const std::string& words) const {
  constexpr int kPatienceMs = 20'000;
  std::string text;
  std::array<char, 512> buffer;
  while (text.find(words) == std::string::npos) {
    pollfd readable = {errors_, POLLIN, 0};
    if (poll(&readable, 1, kPatienceMs) <= 0) break;
    const ssize_t got = read(errors_, buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

int ServerProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hearth
