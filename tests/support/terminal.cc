#include "terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace hearth {
namespace {

constexpr int kPatienceMs = 60000;

// Child: turns the terminal's echo off and becomes the program.
[[noreturn]] void BecomeProgram(char** argv) {
  termios settings = {};
  tcgetattr(STDIN_FILENO, &settings);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHOCTL);
  tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  setenv("TERM", "xterm", 1);
  execv(HEARTH_PROGRAM, argv);
  _exit(127);
}

}  // namespace

TerminalProgram::TerminalProgram(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(HEARTH_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
  if (pid_ == 0) BecomeProgram(argv.data());
  EXPECT_GT(pid_, 0) << "no terminal to be had";
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(terminal_);
}

void TerminalProgram::Type(std::string_view bytes) {
  ASSERT_EQ(write(terminal_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

bool TerminalProgram::ReadMore() {
  pollfd wait = {terminal_, POLLIN, 0};
  if (poll(&wait, 1, kPatienceMs) <= 0) return false;
  char piece[4096];
  const ssize_t n = read(terminal_, piece, sizeof(piece));
  if (n <= 0) return n < 0 && errno == EINTR;  // EIO: the program has closed the other side
  // Whether the terminal writes "\n" as "\r\n" depends on who has its settings just now.
  std::copy_if(piece, piece + n, std::back_inserter(unread_), [](char c) { return c != '\r'; });
  return true;
}

std::string TerminalProgram::ReadUntil(std::string_view words) {
  for (;;) {
    const size_t at = unread_.find(words);
    if (at != std::string::npos) {
      std::string before = unread_.substr(0, at);
      unread_.erase(0, at + words.size());
      return before;
    }
    if (!ReadMore()) {
      ADD_FAILURE() << "'" << words << "' did not come, but: " << unread_;
      return std::exchange(unread_, {});
    }
  }
}

int TerminalProgram::WaitForExit() {
  while (ReadMore()) continue;
  pollfd hung_up = {terminal_, 0, 0};
  if (poll(&hung_up, 1, 0) == 0) {
    ADD_FAILURE() << "the program does not end, but: " << unread_;
    kill(pid_, SIGKILL);
  }
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hearth
