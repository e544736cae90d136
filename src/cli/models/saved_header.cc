// SavedHeader of cli/models/find_model.h.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "cli/models/find_model.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

// Of folders in the folder of models; hidden, so that no list shows them. The process follows.
constexpr std::string_view kHeaderFolder = ".headers.";

// Removes what processes left that were killed.
void RemoveAbandonedHeaders(const fs::path& models) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(models, failure)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kHeaderFolder)) continue;
    name.erase(0, kHeaderFolder.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    const bool is_pid = error == std::errc() && end == name.data() + name.size() && pid > 0;
    if (is_pid && kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), failure);
  }
}

void SendAll(int pipe, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(pipe, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string ReceiveAll(int pipe) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t n = read(pipe, piece, sizeof(piece));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(piece, static_cast<size_t>(n));
  }
}

// Calls `work` in a child of this process, which must have one thread, and returns what it returns.
// An error that it throws is thrown here, by its sentence.
std::string InChild(const std::function<std::string()>& work) {
  constexpr char kDone = '+';
  constexpr char kFailed = '-';
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorCode::kIo, "pipe", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorCode::kIo, "a process", std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    std::string answer;
    try {
      answer = kDone + work();
    } catch (const std::exception& error) {
      answer = kFailed + std::string(error.what());
    }
    SendAll(ends[1], answer);
    _exit(0);
  }
  close(ends[1]);
  const std::string answer = ReceiveAll(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (answer.starts_with(kDone)) return answer.substr(1);
  throw Error(ErrorCode::kIo, "",
              answer.empty() ? "reading the header was interrupted" : answer.substr(1));
}

}  // namespace

SavedHeader::SavedHeader(const hub::ModelName& name) {
  const std::string models = RequireModelsFolder();
  RemoveAbandonedHeaders(models);
  // Where the model will lie, so that what is said of that disk is true.
  folder_ = fmt::format("{}/{}{}", models, kHeaderFolder, getpid());
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorCode::kIo, folder_, "cannot be made: " + error.message());
  try {
    path_ = InChild([&] { return RemoteModel(name).Save(folder_); });
  } catch (...) {
    fs::remove_all(folder_, error);
    throw;
  }
}

SavedHeader::~SavedHeader() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

}  // namespace hearth::cli
