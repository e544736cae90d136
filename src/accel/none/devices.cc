// devices.h in a build without OpenCL (-DHEARTH_OPENCL=OFF): there are no devices.
#include "accel/devices.h"

#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr const char* kWhyNone = "this program was built without OpenCL";

}  // namespace

DeviceList ListDevices() { return {{}, kWhyNone}; }

std::unique_ptr<Device> OpenDevice(size_t, const DeviceOptions&) {
  throw Error(ErrorCode::kNotFound, Field{"device"}, kWhyNone);
}

}  // namespace hearth::accel
