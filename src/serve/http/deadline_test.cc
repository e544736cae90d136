#include "serve/http/deadline.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <vector>

namespace hearth::serve {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class DeadlineTest : public ::testing::Test {
 protected:
  void Set(milliseconds time, int name) {
    deadline_.Set(time, [this, name] { passed_.push_back(name); });
  }

  boost::asio::io_context context_;
  Deadline deadline_{context_.get_executor()};
  std::vector<int> passed_;
};

TEST_F(DeadlineTest, PassesOnce) {
  Set(milliseconds(0), 1);
  EXPECT_FALSE(deadline_.has_passed());
  context_.run();
  EXPECT_TRUE(deadline_.has_passed());
  EXPECT_EQ(passed_, std::vector<int>({1}));
}

TEST_F(DeadlineTest, OnlyTheLastCounts) {
  Set(hours(1), 1);
  Set(milliseconds(0), 2);
  context_.run();
  EXPECT_EQ(passed_, std::vector<int>({2}));
  Set(milliseconds(0), 3);
  EXPECT_FALSE(deadline_.has_passed());
}

// The first timer has run out and its callback waits for its turn: it can no longer be cancelled.
TEST_F(DeadlineTest, OneThatHasRunOutCanStillBeSetAgainOrLifted) {
  for (const bool lifts : {false, true}) {
    passed_.clear();
    context_.restart();
    boost::asio::steady_timer other(context_);
    other.expires_at(boost::asio::steady_timer::time_point::min());
    // Runs before the deadline's callback, in the same turn.
    other.async_wait([&](boost::system::error_code) {
      if (lifts) return deadline_.Lift();
      Set(milliseconds(0), 2);
    });
    Set(milliseconds(-1), 1);
    context_.run();
    EXPECT_EQ(passed_, lifts ? std::vector<int>() : std::vector<int>({2}));
  }
}

TEST_F(DeadlineTest, StoppedItKeepsNobodyWaiting) {
  Set(hours(1), 1);
  deadline_.Stop();
  context_.run();  // until the timer is gone
  EXPECT_TRUE(passed_.empty());
  EXPECT_FALSE(deadline_.has_passed());
}

// A callback may set the next deadline.
TEST_F(DeadlineTest, GoesOnFromItsCallback) {
  deadline_.Set(milliseconds(0), [this] { Set(milliseconds(0), 2); });
  context_.run();
  EXPECT_EQ(passed_, std::vector<int>({2}));
}

}  // namespace
}  // namespace hearth::serve
