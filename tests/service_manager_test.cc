// What `hearth serve` tells a service manager: that it answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/test_data.h"
#include "server_process.h"

namespace hearth {
namespace {

// The socket of a service manager; what it was told, message by message.
class Manager {
 public:
  explicit Manager(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    unlink(path.c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Manager() { close(fd_); }
  std::string Next() {
    pollfd wait = {fd_, POLLIN, 0};
    if (poll(&wait, 1, 60000) != 1) return "";
    char message[256];
    const ssize_t n = recv(fd_, message, sizeof(message), 0);
    return n > 0 ? std::string(message, static_cast<size_t>(n)) : "";
  }

 private:
  const int fd_;
};

TEST(ServiceManagerTest, IsToldOnceTheServerAnswers) {
  const std::string path = ::testing::TempDir() + "hearth_notify";
  Manager manager(path);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ServerProcess server(SourcePath("models/hearth-stories-5m.gguf"), {});
  EXPECT_EQ(manager.Next(), "READY=1");
  EXPECT_EQ(server.Connect().Get("/health").status, 200);
  unsetenv("NOTIFY_SOCKET");
  unlink(path.c_str());
}

}  // namespace
}  // namespace hearth
