#include "serve/http/event_stream.h"

#include <gtest/gtest.h>

#include <string>

namespace hearth::serve {
namespace {

TEST(EventStreamTest, EventsEndWithAnEmptyLine) {
  EXPECT_EQ(FrameEvent("", "{\"a\": 1}"), "data: {\"a\": 1}\n\n");
  EXPECT_EQ(FrameEvent("done", "x"), "event: done\ndata: x\n\n");
  EXPECT_EQ(FrameComment("wait"), ": wait\n\n");
}

TEST(EventStreamTest, ChunksSayTheirBytesInHexadecimal) {
  EXPECT_EQ(FrameChunk("é"), "2\r\né\r\n");
  EXPECT_EQ(FrameChunk(std::string(26, 'a')), "1a\r\n" + std::string(26, 'a') + "\r\n");
}

}  // namespace
}  // namespace hearth::serve
