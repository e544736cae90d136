#include "serve/http/outbox.h"

#include <gtest/gtest.h>

#include <string>

namespace hearth::serve {
namespace {

std::string RestOf(const Outbox& outbox) {
  return {static_cast<const char*>(outbox.rest().data()), outbox.rest().size()};
}

TEST(OutboxTest, WritesPieceAfterPiece) {
  Outbox outbox;
  EXPECT_FALSE(outbox.Begin()) << "nothing waits";
  outbox.Add("ab");
  outbox.Add("cd");
  EXPECT_EQ(outbox.waiting_bytes(), 4u);
  ASSERT_TRUE(outbox.Begin());
  EXPECT_TRUE(outbox.is_writing());
  EXPECT_FALSE(outbox.has_waiting());
  EXPECT_EQ(RestOf(outbox), "abcd");

  outbox.CountWritten(3);
  outbox.Add("ef");
  EXPECT_EQ(RestOf(outbox), "d") << "what waits comes later";
  EXPECT_FALSE(outbox.Begin()) << "one write at a time";
  outbox.CountWritten(1);
  EXPECT_FALSE(outbox.has_rest());
  outbox.End();

  ASSERT_TRUE(outbox.Begin());
  EXPECT_EQ(RestOf(outbox), "ef");
}

TEST(OutboxTest, DropsWhatWaitsAndNotWhatIsBeingWritten) {
  Outbox outbox;
  outbox.Add("ab");
  ASSERT_TRUE(outbox.Begin());
  outbox.Add("cd");
  outbox.DropWaiting();
  EXPECT_EQ(RestOf(outbox), "ab");
  outbox.CountWritten(2);
  outbox.End();
  outbox.DropWritten();
  EXPECT_FALSE(outbox.Begin());
}

}  // namespace
}  // namespace hearth::serve
