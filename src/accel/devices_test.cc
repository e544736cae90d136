#include "accel/devices.h"

#include <gmock/gmock.h>

#include "accel/test_device.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

DeviceList ListOf(std::vector<DeviceKind> kinds) {
  DeviceList list;
  for (const DeviceKind kind : kinds) {
    list.devices.emplace_back();
    list.devices.back().kind = kind;
  }
  if (kinds.empty()) list.why_none = "nothing is plugged in";
  return list;
}

TEST(Devices, AreChosenByNumber) {
  const DeviceList list = ListOf({DeviceKind::kCpu, DeviceKind::kGpu});
  EXPECT_EQ(ChooseDevice(ParseDeviceChoice("0"), list), 0u);
  EXPECT_EQ(ChooseDevice(ParseDeviceChoice("1"), list), 1u);
  EXPECT_THAT(
      [&] { ChooseDevice(ParseDeviceChoice("2"), list); },
      ThrowsMessage<Error>(HasSubstr("there is no device 2: 'hearth devices' lists 0 to 1")));
  EXPECT_THAT([&] { ChooseDevice(ParseDeviceChoice("0"), ListOf({})); },
              ThrowsMessage<Error>(HasSubstr("there is no device: nothing is plugged in")));
}

TEST(Devices, AutoTakesNoProcessor) {
  EXPECT_EQ(ChooseDevice(ParseDeviceChoice("auto"), ListOf({DeviceKind::kCpu, DeviceKind::kGpu})),
            1u);
  EXPECT_EQ(ChooseDevice(ParseDeviceChoice("auto"), ListOf({DeviceKind::kCpu})), std::nullopt);
  EXPECT_EQ(ChooseDevice(ParseDeviceChoice("none"), ListOf({DeviceKind::kGpu})), std::nullopt);
}

TEST(Devices, OtherChoicesAreRefused) {
  for (const char* text : {"", "gpu", "-1", "1x", "99999999999999999999999"}) {
    EXPECT_THROW(ParseDeviceChoice(text), Error) << text;
  }
}

TEST(Devices, SayWhatTheyAre) {
  HEARTH_NEED_DEVICE();
  for (const DeviceInfo& info : ListDevices().devices) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes, 0u);
    EXPECT_GT(info.max_buffer_bytes, 0u);
    EXPECT_GE(info.max_group_size, 128u);  // what the kernels need
    EXPECT_GT(info.compute_units, 0u);
  }
  EXPECT_THROW(OpenDevice(1000, {}), Error);
}

TEST(Device, KeepsWhatIsUploaded) {
  HEARTH_NEED_DEVICE();
  testing::TestBench bench;
  const std::vector<float> values = testing::RandomFloats(1001, 1);
  const auto made = bench.device().MakeBuffer("test", values.size() * sizeof(float));
  DeviceBuffer& buffer = *made;
  EXPECT_THAT(bench.Floats(buffer, values.size()), ::testing::Each(0.0f));
  bench.queue().Upload(std::as_bytes(std::span(values)).subspan(4), buffer, 4);
  const std::unique_ptr<DeviceEvent> event = bench.queue().Mark();
  event->Wait();
  std::vector<float> expected = values;
  expected[0] = 0;
  EXPECT_EQ(bench.Floats(buffer, values.size()), expected);
  EXPECT_THROW(bench.queue().Upload(std::as_bytes(std::span(values)), buffer, 4), Error);
}

TEST(Device, ChargesBuffersToItsBudget) {
  HEARTH_NEED_DEVICE();
  const std::unique_ptr<Device> device = OpenDevice(0, {.memory_bytes = 1 << 20});
  EXPECT_EQ(device->memory().limit_bytes(), 1u << 20);
  {
    const auto half = device->MakeBuffer("first", 1 << 19);
    const auto rest = device->MakeBuffer("second", 1 << 19);
    EXPECT_EQ(device->memory().Ledger().at("first"), 1u << 19);
    EXPECT_EQ(device->memory().used_bytes(), 1u << 20);
    EXPECT_THROW(device->MakeBuffer("third", 1), Error);
  }
  EXPECT_EQ(device->memory().used_bytes(), 0u);
  EXPECT_THROW(device->MakeBuffer("none", 0), Error);
  EXPECT_THROW(device->MakeBuffer("too large", device->info().max_buffer_bytes + 1), Error);
}

}  // namespace
}  // namespace hearth::accel
