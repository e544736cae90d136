#include "accel/devices.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace hearth::accel {

const char* NameOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kAccelerator:
      return "accelerator";
    case DeviceKind::kCpu:
      return "cpu";
  }
  return "unknown";
}

DeviceChoice ParseDeviceChoice(std::string_view text) {
  if (text == "auto") return {DeviceChoice::Kind::kAuto};
  if (text == "none") return {DeviceChoice::Kind::kNone};
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::kInvalidArgument, Field{"device"}, "no such choice",
                "auto, none or the number of a device of 'hearth devices'", Printable(text));
  }
  return {DeviceChoice::Kind::kIndex, index};
}

std::optional<size_t> ChooseDevice(const DeviceChoice& choice, const DeviceList& list) {
  switch (choice.kind) {
    case DeviceChoice::Kind::kNone:
      return std::nullopt;
    case DeviceChoice::Kind::kAuto:
      for (size_t i = 0; i < list.devices.size(); ++i) {
        if (list.devices[i].kind != DeviceKind::kCpu) return i;
      }
      return std::nullopt;
    case DeviceChoice::Kind::kIndex:
      break;
  }
  if (choice.index < list.devices.size()) return choice.index;
  if (list.devices.empty()) {
    throw Error(ErrorCode::kNotFound, Field{"device"},
                fmt::format("there is no device: {}", list.why_none));
  }
  throw Error(ErrorCode::kNotFound, Field{"device"},
              fmt::format("there is no device {}: 'hearth devices' lists 0 to {}", choice.index,
                          list.devices.size() - 1));
}

std::string UsersProgramsFolder() {
  // By the XDG Base Directory Specification a relative path counts as none.
  for (const auto& [name, below] :
       {std::pair("XDG_CACHE_HOME", "hearth/opencl"), std::pair("HOME", ".cache/hearth/opencl")}) {
    const char* const value = std::getenv(name);
    const std::filesystem::path folder = value == nullptr ? "" : value;
    if (folder.is_absolute()) return (folder / below).string();
  }
  return "";
}

}  // namespace hearth::accel
