#include "ops/probe.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

// How fast a machine is cannot be asserted: only that work was done and counted.
TEST(ProbeTest, Int8ProbeDoesWorkOnEveryIsaAndTeam) {
  for (const std::string& isa : UsableIsaNames()) {
    for (const int threads : {1, 3}) {
      Compute compute(isa, threads);
      const ProbeResult result = ProbeInt8(compute, 1e-4);
      EXPECT_GE(result.amount, 4096 * 8) << isa;
      EXPECT_GT(result.seconds, 0) << isa;
      EXPECT_GT(result.PerSecond(), 0) << isa;
      const ProbeResult floats = ProbeFloat(compute, 1e-4);
      EXPECT_GE(floats.amount, 4096 * 16) << isa;
      EXPECT_GT(floats.PerSecond(), 0) << isa;
    }
  }
}

TEST(ProbeTest, ReadProbeReadsWholeLines) {
  const std::vector<std::byte> memory((9 << 20) + 5 * 64 + 3, std::byte{7});
  for (const std::string& isa : UsableIsaNames()) {
    for (const int threads : {1, 3}) {
      Compute compute(isa, threads);
      EXPECT_EQ(ProbeRead(compute, memory).amount, (9 << 20) + 5 * 64) << isa;
    }
  }
}

TEST(ProbeTest, NothingToReadIsNoSpeed) {
  Compute compute("scalar", 1);
  EXPECT_EQ(ProbeRead(compute, {}).amount, 0);
  EXPECT_EQ(ProbeRead(compute, {}).PerSecond(), 0);
}

}  // namespace
}  // namespace hearth
