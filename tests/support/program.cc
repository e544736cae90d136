#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace hearth {
namespace {

// A file that vanishes with the test.
class TempFile {
 public:
  explicit TempFile(const std::string& content) {
    path_ = ::testing::TempDir() + "hearth_cli_XXXXXX";
    const int fd = mkstemp(path_.data());
    close(fd);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

void AddStream(posix_spawn_file_actions_t* actions, int fd, const std::string& wanted,
               const TempFile& file) {
  if (wanted == ProgramStreams::kClosed) {
    posix_spawn_file_actions_addclose(actions, fd);
    return;
  }
  const std::string& path = wanted.empty() ? file.path() : wanted;
  posix_spawn_file_actions_addopen(actions, fd, path.c_str(), O_WRONLY, 0);
}

// Waits for a process; one that runs for longer than any command of a test does is killed.
int StatusOf(pid_t pid) {
  constexpr auto kLimit = std::chrono::minutes(5);
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) != pid) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "it still ran after " << kLimit.count() << " minutes, and was killed";
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return status;
}

}  // namespace

ProgramResult RunHearth(const std::vector<std::string>& arguments, const std::string& input,
                        const ProgramStreams& streams) {
  const TempFile in(input), out(""), err("");
  std::vector<char*> argv = {const_cast<char*>(HEARTH_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.path().c_str(), O_RDONLY, 0);
  AddStream(&actions, 1, streams.out, out);
  AddStream(&actions, 2, streams.err, err);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, HEARTH_PROGRAM, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ProgramResult result;
  EXPECT_EQ(error, 0) << HEARTH_PROGRAM;
  if (error != 0) return result;
  const int status = StatusOf(pid);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = out.Content();
  result.err = err.Content();
  return result;
}

}  // namespace hearth
