#include "accel/opencl/functions.h"

#include <fmt/format.h>

#include <iterator>

#include "base/error.h"
#include "base/system_library.h"

namespace hearth::accel {
namespace {

constexpr const char* kFileNames[] = {"libOpenCL.so.1", "libOpenCL.so"};

ClFunctions FindFunctions() {
  const SystemLibrary library(kFileNames, "a device", "ocl-icd-libopencl1 and a driver");
  ClFunctions cl;
  library.Find("clGetPlatformIDs", cl.get_platform_ids);
  library.Find("clGetPlatformInfo", cl.get_platform_info);
  library.Find("clGetDeviceIDs", cl.get_device_ids);
  library.Find("clGetDeviceInfo", cl.get_device_info);
  library.Find("clCreateContext", cl.create_context);
  library.Find("clReleaseContext", cl.release_context);
  library.Find("clCreateCommandQueue", cl.create_queue);
  library.Find("clReleaseCommandQueue", cl.release_queue);
  library.Find("clCreateBuffer", cl.create_buffer);
  library.Find("clReleaseMemObject", cl.release_buffer);
  library.Find("clCreateProgramWithSource", cl.create_program);
  library.Find("clCreateProgramWithBinary", cl.create_program_of_binary);
  library.Find("clBuildProgram", cl.build_program);
  library.Find("clGetProgramInfo", cl.get_program_info);
  library.Find("clGetProgramBuildInfo", cl.get_build_info);
  library.Find("clReleaseProgram", cl.release_program);
  library.Find("clCreateKernel", cl.create_kernel);
  library.Find("clSetKernelArg", cl.set_argument);
  library.Find("clReleaseKernel", cl.release_kernel);
  library.Find("clEnqueueFillBuffer", cl.fill_buffer);
  library.Find("clEnqueueWriteBuffer", cl.write_buffer);
  library.Find("clEnqueueReadBuffer", cl.read_buffer);
  library.Find("clEnqueueNDRangeKernel", cl.launch);
  library.Find("clEnqueueMarkerWithWaitList", cl.mark);
  library.Find("clWaitForEvents", cl.wait_for_events);
  library.Find("clReleaseEvent", cl.release_event);
  library.Find("clGetEventProfilingInfo", cl.get_event_time);
  library.Find("clFlush", cl.flush);
  library.Find("clFinish", cl.finish);
  return cl;
}

LoadedCl Load() {
  static ClFunctions functions;
  try {
    functions = FindFunctions();
    return {&functions, ""};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

struct NamedCode {
  cl_int code;
  const char* name;
};

constexpr NamedCode kCodes[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_BINARY, "CL_INVALID_BINARY"},
    {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
    {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT"},
    {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {CL_INVALID_ARG_INDEX, "CL_INVALID_ARG_INDEX"},
    {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
};

// True for the codes of an allocation that the device has no memory for.
bool IsOutOfMemory(cl_int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
}

}  // namespace

const LoadedCl& LoadCl() {
  static const LoadedCl kLoaded = Load();
  return kLoaded;
}

std::string ClErrorName(cl_int code) {
  for (const NamedCode& each : kCodes) {
    if (each.code == code) return each.name;
  }
  return fmt::format("OpenCL error {}", code);
}

void CheckCl(cl_int code, const std::string& device, const std::string& doing) {
  if (code == CL_SUCCESS) return;
  if (IsOutOfMemory(code)) {
    throw Error(ErrorCode::kOutOfBudget, device,
                fmt::format("{} failed with {}: the device has no memory left; end other programs "
                            "that use it",
                            doing, ClErrorName(code)));
  }
  throw Error(ErrorCode::kIo, device,
              fmt::format("{} failed with {}: the device is lost, or its driver does not take this",
                          doing, ClErrorName(code)));
}

}  // namespace hearth::accel
