// Which neurons fire: every table against the scalar oracle, which is held against the definition.
#include <limits>

#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

using testing::GuardedArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class PackFiredTest : public testing::TableTest {};

struct Bounds {
  float below, from, to;
};
constexpr Bounds kBounds[] = {{0.0f, kNan, kNan},      // ReLU
                              {0.25f, kNan, kNan},     // FATReLU
                              {-1.5f, -0.25f, 0.25f},  // thresholded SiLU
                              {kNan, kNan, kNan}};     // all fire

std::vector<float> RandomGates(std::mt19937& random, int64_t count) {
  std::vector<float> gates(static_cast<size_t>(count));
  for (float& gate : gates) {
    switch (random() % 8) {
      case 0:
        gate = 0.0f;
        break;
      case 1:
        gate = -0.0f;
        break;
      case 2:
        gate = random() % 4 == 0 ? kNan : 0.25f;
        break;
      default:
        gate = static_cast<float>(static_cast<int>(random() % 4001) - 2000) * 1e-3f;
    }
  }
  return gates;
}

TEST_P(PackFiredTest, KeepsWhatIsNotSilentInOrder) {
  std::mt19937 random(7);
  for (int64_t count = 0; count <= 140; ++count) {
    for (const Bounds& bounds : kBounds) {
      const bool limited = random() % 2 == 0;
      const size_t words = static_cast<size_t>((count + 63) / 64);
      std::vector<uint64_t> allowed(words);
      for (uint64_t& word : allowed) word = uint64_t{random()} << 32 | random();
      std::vector<int32_t> numbers(static_cast<size_t>(count));
      for (int32_t& number : numbers) number = static_cast<int32_t>(random() % 100000);
      const std::vector<float> values = RandomGates(random, count);

      std::vector<int32_t> neurons;
      std::vector<float> gates;
      std::vector<uint64_t> bits(words);
      for (size_t i = 0; i < values.size(); ++i) {
        const float gate = values[i];
        const bool is_silent = gate <= bounds.below || (gate >= bounds.from && gate <= bounds.to);
        if (is_silent || (limited && (allowed[i / 64] >> i % 64 & 1) == 0)) continue;
        neurons.push_back(numbers[i]);
        gates.push_back(gate);
        bits[i / 64] |= uint64_t{1} << i % 64;
      }

      // Into arrays of their own, and in place.
      for (const bool in_place : {false, true}) {
        GuardedArray<int32_t> from_neurons(numbers);
        GuardedArray<float> from_gates(values);
        GuardedArray<int32_t> to_neurons(std::vector<int32_t>(numbers.size(), -1));
        GuardedArray<float> to_gates(std::vector<float>(values.size(), -1.0f));
        GuardedArray<uint64_t> fired(std::vector<uint64_t>(words, 99));
        int32_t* out_neurons = in_place ? from_neurons.data() : to_neurons.data();
        float* out_gates = in_place ? from_gates.data() : to_gates.data();
        const int64_t packed =
            table().pack_fired({from_neurons.data(), from_gates.data(), count, bounds.below,
                                bounds.from, bounds.to, limited ? allowed.data() : nullptr,
                                in_place ? nullptr : fired.data(), out_neurons, out_gates});
        ASSERT_EQ(packed, std::ssize(neurons)) << count;
        for (size_t i = 0; i < neurons.size(); ++i) ASSERT_EQ(out_neurons[i], neurons[i]);
        ASSERT_TRUE(testing::SameBits(out_gates, gates.data(), gates.size() * sizeof(float)));
        if (!in_place) {
          ASSERT_EQ(fired.ToVector(), bits) << count;
        }
      }
    }
  }
}

HEARTH_FOR_ALL_TABLES(PackFiredTest);

}  // namespace
}  // namespace hearth::kernels
