#include "accel/devices.h"

#include "accel/opencl/cl_device.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

struct FoundDevice {
  cl_platform_id platform;
  cl_device_id device;
};

// The loader's code where no driver is installed (cl_khr_icd).
constexpr cl_int kNoPlatform = -1001;

std::vector<FoundDevice> FindDevices(const ClFunctions& cl) {
  cl_uint count = 0;
  cl_int code = cl.get_platform_ids(0, nullptr, &count);
  if (code == kNoPlatform) return {};
  CheckCl(code, "OpenCL", "looking for platforms");
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) {
    CheckCl(cl.get_platform_ids(count, platforms.data(), nullptr), "OpenCL",
            "looking for platforms");
  }
  std::vector<FoundDevice> found;
  for (const cl_platform_id platform : platforms) {
    code = cl.get_device_ids(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
    if (code == CL_DEVICE_NOT_FOUND) continue;
    CheckCl(code, "OpenCL", "looking for devices");
    if (count == 0) continue;
    std::vector<cl_device_id> ids(count);
    CheckCl(cl.get_device_ids(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr), "OpenCL",
            "looking for devices");
    for (const cl_device_id id : ids) found.push_back({platform, id});
  }
  return found;
}

}  // namespace

DeviceList ListDevices() {
  const LoadedCl& loaded = LoadCl();
  if (loaded.functions == nullptr) return {{}, loaded.why_not};
  DeviceList list;
  for (const FoundDevice& found : FindDevices(*loaded.functions)) {
    list.devices.push_back(ReadDeviceInfo(*loaded.functions, found.platform, found.device));
  }
  if (list.devices.empty()) list.why_none = "no OpenCL driver that has a device is installed";
  return list;
}

std::unique_ptr<Device> OpenDevice(size_t index, const DeviceOptions& options) {
  const LoadedCl& loaded = LoadCl();
  if (loaded.functions == nullptr) {
    throw Error(ErrorCode::kNotFound, Field{"device"}, loaded.why_not);
  }
  const std::vector<FoundDevice> found = FindDevices(*loaded.functions);
  if (index >= found.size()) {
    throw Error(ErrorCode::kNotFound, Field{"device"}, "there is no device of this number");
  }
  const FoundDevice& chosen = found[index];
  return OpenClDevice(*loaded.functions, chosen.device,
                      ReadDeviceInfo(*loaded.functions, chosen.platform, chosen.device), options);
}

}  // namespace hearth::accel
