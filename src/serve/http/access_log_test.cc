#include "serve/http/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/test_data.h"

namespace hearth::serve {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogLineTest, SaysWhatIsKnown) {
  LoggedRequest request;
  request.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1795896574007));
  request.client = "::1";
  request.method = "POST";
  request.target = "/v1/completions?api_key=secret";
  request.status = 200;
  request.bytes_sent = 1234;
  request.milliseconds = 41.26;
  EXPECT_EQ(LogLine(request),
            "2026-11-28T20:09:34.007Z ::1 POST /v1/completions 200 bytes=1234 ms=41.3");
  request.exchange = {.prompt_tokens = 5, .completion_tokens = 0};
  EXPECT_THAT(LogLine(request), EndsWith(" ms=41.3 prompt=5 completion=0"));
  request.exchange.failure = 503;
  EXPECT_THAT(LogLine(request), EndsWith(" completion=0 error=503"));
  request.is_aborted = true;
  EXPECT_THAT(LogLine(request), EndsWith(" error=503 aborted"));
  request.status = 503;
  EXPECT_THAT(LogLine(request), EndsWith(" completion=0 aborted")) << "the status says it";
  request.status = 0;
  EXPECT_THAT(LogLine(request), HasSubstr(" /v1/completions - bytes"));
}

TEST(LogLineTest, NoClientForgesALine) {
  LoggedRequest request;
  request.client = "127.0.0.1";
  request.method = "GET";
  request.target = "/a b\n2026 \"\\\x1b[2J\x7f\x80\xc3\xa9";
  EXPECT_THAT(LogLine(request), HasSubstr(" GET /a\\x20b\\x0a2026\\x20\\x22\\x5c\\x1b[2J\\x7f\\x80"
                                          "\\xc3\\xa9 "));
  const std::string long_target = "/" + std::string(20'000, '\n');
  const std::string long_method(20'000, '\r');
  request.target = long_target;
  request.method = long_method;
  EXPECT_LT(LogLine(request).size(), 4096u) << "a pipe takes it whole";
  EXPECT_THAT(LogLine(request), HasSubstr("... "));
  for (const char* target : {"user:secret@host", "", "*"}) {
    request.target = target;
    EXPECT_THAT(LogLine(request), HasSubstr(" - - bytes=")) << target;
  }
}

class AccessLogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const int fd : ends_) close(fd);
  }
  // What has been written, without waiting for more.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t got; (got = read(ends_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<size_t>(got));
    }
    return text;
  }
  // Writes more than the other end takes, then what it takes again.
  void Overflow() {
    AccessLog log(ends_[1]);
    const std::string line(1000, 'x');
    int written = 0;
    for (; log.dropped_lines() == 0; ++written) log.Write(line);
    for (int i = 0; i < 9; ++i) log.Write(line);
    EXPECT_EQ(log.dropped_lines(), 10u);
    EXPECT_GT(written, 10);
    EXPECT_THAT(Read(), Not(HasSubstr("dropped")));
    log.Write("next");
    EXPECT_THAT(Read(), EndsWith("hearth: 10 lines of the log were dropped: nobody took them in "
                                 "time\nnext\n"));
    EXPECT_EQ(log.dropped_lines(), 0u);
    EXPECT_EQ(fcntl(ends_[1], F_GETFL) & O_NONBLOCK, 0) << "others write there too";
  }

  std::array<int, 2> ends_ = {-1, -1};
};

TEST_F(AccessLogTest, AFullPipeDropsLinesAndSaysSo) {
  ASSERT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
  Overflow();
}

TEST_F(AccessLogTest, AFullSocketDropsLinesAndSaysSo) {
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0);
  Overflow();
}

TEST_F(AccessLogTest, WhoeverDoesNotReadAnyMoreKeepsNobodyFromServing) {
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0);
  shutdown(ends_[0], SHUT_RD);
  AccessLog log(ends_[1]);
  log.Write("one");
  log.Write("two");
  EXPECT_EQ(log.dropped_lines(), 2u);
}

TEST_F(AccessLogTest, TheEndSaysWhatWasDropped) {
  ASSERT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
  {
    AccessLog log(ends_[1]);
    while (log.dropped_lines() == 0) log.Write(std::string(1000, 'x'));
    Read();
  }
  EXPECT_THAT(Read(), HasSubstr("hearth: 1 lines of the log were dropped"));
}

TEST_F(AccessLogTest, AFileGoesOnWhereItWas) {
  const std::string path = ::testing::TempDir() + "hearth_access_log_file";
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "before\n", 7), 7);
  AccessLog(file).Write("after");
  close(file);
  EXPECT_EQ(ReadWholeFile(path), "before\nafter\n");
}

}  // namespace
}  // namespace hearth::serve
