// The functions of the system's OpenCL library that Hearth uses (OpenCL 1.2, the Khronos
// specification). The library is loaded at the first use, not linked.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>

namespace hearth::accel {

struct ClFunctions {
  decltype(&::clGetPlatformIDs) get_platform_ids = nullptr;
  decltype(&::clGetPlatformInfo) get_platform_info = nullptr;
  decltype(&::clGetDeviceIDs) get_device_ids = nullptr;
  decltype(&::clGetDeviceInfo) get_device_info = nullptr;
  decltype(&::clCreateContext) create_context = nullptr;
  decltype(&::clReleaseContext) release_context = nullptr;
  decltype(&::clCreateCommandQueue) create_queue = nullptr;
  decltype(&::clReleaseCommandQueue) release_queue = nullptr;
  decltype(&::clCreateBuffer) create_buffer = nullptr;
  decltype(&::clReleaseMemObject) release_buffer = nullptr;
  decltype(&::clCreateProgramWithSource) create_program = nullptr;
  decltype(&::clCreateProgramWithBinary) create_program_of_binary = nullptr;
  decltype(&::clBuildProgram) build_program = nullptr;
  decltype(&::clGetProgramInfo) get_program_info = nullptr;
  decltype(&::clGetProgramBuildInfo) get_build_info = nullptr;
  decltype(&::clReleaseProgram) release_program = nullptr;
  decltype(&::clCreateKernel) create_kernel = nullptr;
  decltype(&::clSetKernelArg) set_argument = nullptr;
  decltype(&::clReleaseKernel) release_kernel = nullptr;
  decltype(&::clEnqueueFillBuffer) fill_buffer = nullptr;
  decltype(&::clEnqueueWriteBuffer) write_buffer = nullptr;
  decltype(&::clEnqueueReadBuffer) read_buffer = nullptr;
  decltype(&::clEnqueueNDRangeKernel) launch = nullptr;
  decltype(&::clEnqueueMarkerWithWaitList) mark = nullptr;
  decltype(&::clWaitForEvents) wait_for_events = nullptr;
  decltype(&::clReleaseEvent) release_event = nullptr;
  decltype(&::clGetEventProfilingInfo) get_event_time = nullptr;
  decltype(&::clFlush) flush = nullptr;
  decltype(&::clFinish) finish = nullptr;
};

struct LoadedCl {
  const ClFunctions* functions = nullptr;  // null where the library cannot be loaded
  std::string why_not;                     // one sentence without a full stop
};

// Loads the library at the first call, for good. Thread-safe.
const LoadedCl& LoadCl();

// The name of an error code: "CL_OUT_OF_RESOURCES".
std::string ClErrorName(cl_int code);

// Returns for CL_SUCCESS. Throws "DEVICE: DOING failed with CL_...": Error(kOutOfBudget) where the
// device has no memory left, Error(kIo) for other codes.
void CheckCl(cl_int code, const std::string& device, const std::string& doing);

}  // namespace hearth::accel
