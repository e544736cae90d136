// Faults of devices, which these tests make by replacing functions of the library.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "accel/kernel_sources.h"
#include "accel/opencl/cl_device.h"
#include "accel/opencl/program_cache.h"
#include "accel/test_device.h"
#include "base/error.h"
#include "base/test_folder.h"

namespace hearth::accel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Property;
using ::testing::Throws;
using ::testing::ThrowsMessage;

int sources_built = 0;

cl_program CL_API_CALL CountSources(cl_context context, cl_uint count, const char** texts,
                                    const size_t* lengths, cl_int* code) {
  ++sources_built;
  return LoadCl().functions->create_program(context, count, texts, lengths, code);
}

cl_program CL_API_CALL BrokenSource(cl_context context, cl_uint, const char**, const size_t*,
                                    cl_int* code) {
  const char* text = "kernel void rms_norm(global float* x) { x[0] = nonsense; }";
  return LoadCl().functions->create_program(context, 1, &text, nullptr, code);
}

// Opens the first device with other functions than the library's.
std::unique_ptr<Device> DeviceOf(const ClFunctions& functions, const DeviceOptions& options = {}) {
  const ClFunctions& cl = *LoadCl().functions;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl.get_platform_ids(1, &platform, nullptr);
  cl.get_device_ids(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  return OpenClDevice(functions, device, ReadDeviceInfo(cl, platform, device), options);
}

TEST(DeviceFaults, NoMemoryIsSaidInOneSentence) {
  HEARTH_NEED_DEVICE();
  ClFunctions functions = *LoadCl().functions;
  functions.create_buffer = [](cl_context, cl_mem_flags, size_t, void*, cl_int* code) -> cl_mem {
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return nullptr;
  };
  const std::unique_ptr<Device> device = DeviceOf(functions);
  EXPECT_THAT([&] { device->MakeBuffer("weights", 100); },
              Throws<Error>(AllOf(
                  Property(&Error::code, ErrorCode::kOutOfBudget),
                  Property(&Error::what, HasSubstr("making a buffer of 100 bytes failed with "
                                                   "CL_MEM_OBJECT_ALLOCATION_FAILURE: the device "
                                                   "has no memory left")))));
  EXPECT_EQ(device->memory().used_bytes(), 0u);
}

TEST(DeviceFaults, ALostDeviceIsSaidInOneSentence) {
  HEARTH_NEED_DEVICE();
  ClFunctions functions = *LoadCl().functions;
  functions.launch = [](cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,
                        const size_t*, cl_uint, const cl_event*,
                        cl_event*) -> cl_int { return CL_OUT_OF_RESOURCES; };
  functions.wait_for_events = [](cl_uint, const cl_event*) -> cl_int {
    return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  };
  const std::unique_ptr<Device> device = DeviceOf(functions);
  const std::unique_ptr<DeviceQueue> queue = device->MakeQueue();
  const std::unique_ptr<DeviceKernel> kernel = device->MakeKernel({"vectors"}, "add");
  EXPECT_THAT([&] { queue->Launch(*kernel, {}, {}); },
              Throws<Error>(AllOf(Property(&Error::code, ErrorCode::kIo),
                                  Property(&Error::what, HasSubstr("the kernel add failed with "
                                                                   "CL_OUT_OF_RESOURCES: the "
                                                                   "device is lost")))));
  const std::unique_ptr<DeviceEvent> event = queue->Mark();
  EXPECT_THAT([&] { event->Wait(); }, ThrowsMessage<Error>(HasSubstr("waiting for it failed")));
}

TEST(DeviceFaults, AProgramThatCannotBeBuiltSaysWhy) {
  HEARTH_NEED_DEVICE();
  ClFunctions functions = *LoadCl().functions;
  functions.create_program = BrokenSource;
  const std::unique_ptr<Device> device = DeviceOf(functions);
  EXPECT_THAT([&] { device->MakeKernel({"vectors"}, "rms_norm"); },
              Throws<Error>(AllOf(
                  Property(&Error::code, ErrorCode::kUnsupported),
                  Property(&Error::what,
                           AllOf(HasSubstr("its driver cannot build the program vectors"),
                                 HasSubstr("CL_BUILD_PROGRAM_FAILURE"), Not(HasSubstr("\n")))))));
  EXPECT_THROW(KernelSource("nothing"), Error);
}

TEST(DeviceFaults, ADamagedCacheIsBuiltAgain) {
  HEARTH_NEED_DEVICE();
  TestFolder folder("hearth-programs");
  ClFunctions functions = *LoadCl().functions;
  functions.create_program = CountSources;
  const DeviceOptions options = {.cache_folder = folder.Path("made")};
  // Builds or loads one program in a device of its own.
  const auto built = [&] {
    sources_built = 0;
    DeviceOf(functions, options)->MakeKernel({"attention"}, "attend");
    return sources_built;
  };
  const auto file = [&] {
    const auto begin = std::filesystem::directory_iterator(folder.Path("made"));
    return begin->path().string();
  };
  EXPECT_EQ(built(), 1);
  EXPECT_EQ(built(), 0);
  const std::string whole = ReadWholeFile(file());
  std::string altered = whole;
  altered[altered.size() / 2] = static_cast<char>(altered[altered.size() / 2] ^ 1);
  std::ofstream(file(), std::ios::binary) << altered;
  EXPECT_EQ(built(), 1);
  EXPECT_EQ(built(), 0);
  for (const size_t left : {whole.size() - 1, whole.size() / 2, size_t{16}, size_t{0}}) {
    std::ofstream(file(), std::ios::binary) << whole.substr(0, left);
    EXPECT_EQ(built(), 1) << left << " bytes";
    EXPECT_EQ(built(), 0) << left << " bytes";
  }
}

// What a driver runs must be this user's own.
TEST(ProgramCache, TakesNothingThatOthersCanWrite) {
  namespace fs = std::filesystem;
  TestFolder folder("hearth-cache-others");
  const ProgramCache cache(folder.Path("programs"));
  const std::vector<std::byte> binary(100, std::byte{7});
  cache.Keep("a", binary);
  const std::string path = cache.PathOf("a");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(path, others, fs::perm_options::add);
    EXPECT_EQ(cache.Find("a"), std::nullopt);
    fs::permissions(path, others, fs::perm_options::remove);
    EXPECT_EQ(cache.Find("a"), binary);
  }
  if (geteuid() == 0) {  // only root can give a file away
    ASSERT_EQ(chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    EXPECT_EQ(cache.Find("a"), std::nullopt);
  }
  // Another program's binary under this name.
  fs::remove(path);
  cache.Keep("b", binary);
  fs::rename(cache.PathOf("b"), path);
  EXPECT_EQ(cache.Find("a"), std::nullopt);
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(cache.Find("a"), std::nullopt);
}

TEST(ProgramCache, KeepsBinariesByTheirKey) {
  TestFolder folder("hearth-cache");
  const ProgramCache cache(folder.Path("programs"));
  const std::vector<std::byte> binary(100, std::byte{7});
  EXPECT_EQ(cache.Find("a"), std::nullopt);
  cache.Keep("a", binary);
  EXPECT_EQ(cache.Find("a"), binary);
  EXPECT_EQ(cache.Find("b"), std::nullopt);
  std::ofstream(cache.PathOf("a"), std::ios::binary) << "short";
  EXPECT_EQ(cache.Find("a"), std::nullopt);
  // Where there is no folder, nothing is kept and nothing fails.
  const ProgramCache nowhere("");
  nowhere.Keep("a", binary);
  EXPECT_EQ(nowhere.Find("a"), std::nullopt);
  const ProgramCache impossible("/proc/hearth");
  impossible.Keep("a", binary);
  EXPECT_EQ(impossible.Find("a"), std::nullopt);
}

}  // namespace
}  // namespace hearth::accel
