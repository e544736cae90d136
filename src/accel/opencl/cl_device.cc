#include "accel/opencl/cl_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "accel/opencl/cl_handle.h"
#include "accel/opencl/cl_programs.h"
#include "base/error.h"
#include "storage/clock.h"

namespace hearth::accel {
namespace {

// Buffers are rounded up to a multiple of this, so that they can be filled by words.
constexpr uint64_t kBufferGrain = 16;

// The library and the device's name, which all objects of a device share.
struct ClPlace {
  const ClFunctions& cl;
  const std::string& name;

  void Check(cl_int code, const std::string& doing) const { CheckCl(code, name, doing); }
};

class ClBuffer final : public DeviceBuffer {
 public:
  ClBuffer(BudgetCharge charge, ClHandle<cl_mem> memory, uint64_t bytes)
      : charge_(std::move(charge)), memory_(std::move(memory)), bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_; }
  cl_mem get() const { return memory_.get(); }

 private:
  BudgetCharge charge_;
  ClHandle<cl_mem> memory_;
  uint64_t bytes_;
};

class ClKernel final : public DeviceKernel {
 public:
  ClKernel(ClHandle<cl_kernel> kernel, const char* name)
      : kernel_(std::move(kernel)), name_(name) {}
  cl_kernel get() const { return kernel_.get(); }
  const std::string& name() const { return name_; }

 private:
  ClHandle<cl_kernel> kernel_;
  std::string name_;
};

// A mark behind all commands of a queue, which are sent to the device.
ClHandle<cl_event> MarkQueue(const ClPlace& place, cl_command_queue queue) {
  cl_event event = nullptr;
  place.Check(place.cl.mark(queue, 0, nullptr, &event), "a mark");
  ClHandle<cl_event> mark(event, place.cl.release_event);
  place.Check(place.cl.flush(queue), "sending commands to it");
  return mark;
}

void WaitFor(const ClPlace& place, cl_event event) {
  place.Check(place.cl.wait_for_events(1, &event), "waiting for it");
}

// Not by clFinish, from which Mesa 22.3's Rusticl returns while commands are still to be run.
void WaitForAll(const ClPlace& place, cl_command_queue queue) {
  WaitFor(place, MarkQueue(place, queue).get());
}

class ClEvent final : public DeviceEvent {
 public:
  ClEvent(const ClPlace& place, ClHandle<cl_event> event)
      : place_(place), event_(std::move(event)) {}
  void Wait() override { WaitFor(place_, event_.get()); }

 private:
  const ClPlace& place_;
  ClHandle<cl_event> event_;
};

void CheckRange(const ClPlace& place, const DeviceBuffer& buffer, uint64_t offset, size_t bytes) {
  if (offset > buffer.size_bytes() || bytes > buffer.size_bytes() - offset) {
    throw Error(ErrorCode::kInternal, place.name, "a copy reaches outside its buffer");
  }
}

// Commands that are sent and whose times are wanted.
class TimedCommands {
 public:
  explicit TimedCommands(const ClPlace& place) : place_(place) {}
  ~TimedCommands() {
    for (const Command& command : commands_) {
      if (command.event != nullptr) place_.cl.release_event(command.event);
    }
  }
  TimedCommands(const TimedCommands&) = delete;
  TimedCommands& operator=(const TimedCommands&) = delete;

  // Where the next command puts its event.
  cl_event* Next(std::string what) {
    commands_.push_back(
        {std::move(what), 1e-9 * static_cast<double>(SteadyClock().NowNs()), nullptr});
    return &commands_.back().event;
  }

  std::vector<CommandTime> Take() {
    std::vector<CommandTime> times;
    for (Command& command : commands_) {
      if (command.event == nullptr) continue;  // it was refused
      const ClHandle<cl_event> event(std::exchange(command.event, nullptr),
                                     place_.cl.release_event);
      // The device has a clock of its own, which showed `queued` when the host sent the command.
      const double queued = DeviceSeconds(event.get(), CL_PROFILING_COMMAND_QUEUED);
      const double begin = DeviceSeconds(event.get(), CL_PROFILING_COMMAND_START);
      const double end = DeviceSeconds(event.get(), CL_PROFILING_COMMAND_END);
      times.push_back({std::move(command.what), command.sent_seconds + (begin - queued),
                       command.sent_seconds + (end - queued)});
    }
    commands_.clear();
    return times;
  }

 private:
  struct Command {
    std::string what;
    double sent_seconds = 0;
    cl_event event = nullptr;
  };

  double DeviceSeconds(cl_event event, cl_profiling_info what) const {
    cl_ulong nanoseconds = 0;
    place_.Check(place_.cl.get_event_time(event, what, sizeof(nanoseconds), &nanoseconds, nullptr),
                 "asking when a command ran");
    return static_cast<double>(nanoseconds) * 1e-9;
  }

  const ClPlace& place_;
  std::deque<Command> commands_;
};

class ClQueue final : public DeviceQueue {
 public:
  ClQueue(const ClPlace& place, ClHandle<cl_command_queue> queue, bool is_timed)
      : place_(place), queue_(std::move(queue)) {
    if (is_timed) timed_.emplace(place);
  }
  // Commands in flight still use memory of the host.
  ~ClQueue() override {
    try {
      Finish();
    } catch (const Error&) {  // a lost device: nothing of it is in flight any more
    }
  }

  void Upload(std::span<const std::byte> from, DeviceBuffer& to, uint64_t offset) override {
    if (from.empty()) return;
    CheckRange(place_, to, offset, from.size());
    const cl_mem memory = static_cast<ClBuffer&>(to).get();
    place_.Check(place_.cl.write_buffer(queue_.get(), memory, CL_FALSE, offset, from.size(),
                                        from.data(), 0, nullptr, EventOf("upload")),
                 "an upload");
  }

  void Download(DeviceBuffer& from, uint64_t offset, std::span<std::byte> to) override {
    if (to.empty()) return;
    CheckRange(place_, from, offset, to.size());
    const cl_mem memory = static_cast<ClBuffer&>(from).get();
    place_.Check(place_.cl.read_buffer(queue_.get(), memory, CL_FALSE, offset, to.size(), to.data(),
                                       0, nullptr, EventOf("download")),
                 "a download");
  }

  void Launch(DeviceKernel& kernel, const LaunchSize& size,
              std::span<const KernelArgument> arguments) override {
    if (size.total[0] == 0 || size.total[1] == 0) return;
    const auto& of_cl = static_cast<ClKernel&>(kernel);
    for (size_t i = 0; i < arguments.size(); ++i) {
      place_.Check(SetArgument(of_cl.get(), static_cast<cl_uint>(i), arguments[i]),
                   fmt::format("giving argument {} to the kernel {}", i, of_cl.name()));
    }
    const cl_int code = place_.cl.launch(queue_.get(), of_cl.get(), 2, nullptr, size.total.data(),
                                         size.group.data(), 0, nullptr, EventOf(of_cl.name()));
    if (code != CL_SUCCESS) place_.Check(code, fmt::format("the kernel {}", of_cl.name()));
  }

  std::unique_ptr<DeviceEvent> Mark() override {
    return std::make_unique<ClEvent>(place_, MarkQueue(place_, queue_.get()));
  }

  void Finish() override { WaitForAll(place_, queue_.get()); }

  std::vector<CommandTime> TakeTimes() override {
    return timed_ ? timed_->Take() : std::vector<CommandTime>();
  }

 private:
  cl_event* EventOf(const std::string& what) { return timed_ ? timed_->Next(what) : nullptr; }

  cl_int SetArgument(cl_kernel kernel, cl_uint index, const KernelArgument& argument) const {
    if (DeviceBuffer* const* buffer = std::get_if<DeviceBuffer*>(&argument)) {
      const cl_mem memory = static_cast<ClBuffer*>(*buffer)->get();
      return place_.cl.set_argument(kernel, index, sizeof(memory), &memory);
    }
    return std::visit(
        [&](const auto& value) {
          return place_.cl.set_argument(kernel, index, sizeof(value), &value);
        },
        argument);
  }

  const ClPlace& place_;
  ClHandle<cl_command_queue> queue_;
  std::optional<TimedCommands> timed_;
};

class ClDevice final : public Device {
 public:
  ClDevice(const ClFunctions& cl, cl_device_id device, DeviceInfo info,
           const DeviceOptions& options)
      : info_(std::move(info)),
        place_{cl, info_.name},
        device_(device),
        memory_(std::min(options.memory_bytes, info_.memory_bytes)),
        context_(MakeContext()),
        programs_(cl, context_.get(), device, info_, options.cache_folder),
        fills_(MakeClQueue(0)) {}

  const DeviceInfo& info() const override { return info_; }
  Budget& memory() override { return memory_; }

  std::unique_ptr<DeviceBuffer> MakeBuffer(std::string_view name, uint64_t bytes) override {
    if (bytes == 0 || bytes > info_.max_buffer_bytes) {
      throw Error(ErrorCode::kOutOfBudget, info_.name,
                  fmt::format("a buffer of this device has at most {} bytes, and '{}' needs {}",
                              info_.max_buffer_bytes, name, bytes));
    }
    BudgetCharge charge = memory_.Charge(name, bytes);
    const uint64_t whole = (bytes + kBufferGrain - 1) / kBufferGrain * kBufferGrain;
    cl_int code = CL_SUCCESS;
    ClHandle<cl_mem> memory(
        place_.cl.create_buffer(context_.get(), CL_MEM_READ_WRITE, whole, nullptr, &code),
        place_.cl.release_buffer);
    const std::string doing = fmt::format("making a buffer of {} bytes", bytes);
    place_.Check(code, doing);
    // A driver may reserve memory at its first use only: the fill makes it fail here.
    const cl_uint zero = 0;
    const std::lock_guard lock(fills_mutex_);
    place_.Check(place_.cl.fill_buffer(fills_.get(), memory.get(), &zero, sizeof(zero), 0, whole, 0,
                                       nullptr, nullptr),
                 doing);
    place_.Check(place_.cl.finish(fills_.get()), doing);  // says what went wrong
    WaitForAll(place_, fills_.get());
    return std::make_unique<ClBuffer>(std::move(charge), std::move(memory), bytes);
  }

  std::unique_ptr<DeviceKernel> MakeKernel(const ProgramName& program,
                                           const char* kernel) override {
    cl_int code = CL_SUCCESS;
    ClHandle<cl_kernel> made(place_.cl.create_kernel(programs_.Get(program), kernel, &code),
                             place_.cl.release_kernel);
    place_.Check(code, fmt::format("making the kernel {}", kernel));
    return std::make_unique<ClKernel>(std::move(made), kernel);
  }

  std::unique_ptr<DeviceQueue> MakeQueue() override {
    return std::make_unique<ClQueue>(place_, MakeClQueue(0), false);
  }
  std::unique_ptr<DeviceQueue> MakeTimedQueue() override {
    return std::make_unique<ClQueue>(place_, MakeClQueue(CL_QUEUE_PROFILING_ENABLE), true);
  }

 private:
  ClHandle<cl_context> MakeContext() const {
    cl_int code = CL_SUCCESS;
    ClHandle<cl_context> context(
        place_.cl.create_context(nullptr, 1, &device_, nullptr, nullptr, &code),
        place_.cl.release_context);
    place_.Check(code, "opening it");
    return context;
  }

  ClHandle<cl_command_queue> MakeClQueue(cl_command_queue_properties properties) const {
    cl_int code = CL_SUCCESS;
    ClHandle<cl_command_queue> queue(
        place_.cl.create_queue(context_.get(), device_, properties, &code),
        place_.cl.release_queue);
    place_.Check(code, "making a queue");
    return queue;
  }

  const DeviceInfo info_;
  const ClPlace place_;
  const cl_device_id device_;
  Budget memory_;
  const ClHandle<cl_context> context_;
  ClPrograms programs_;
  std::mutex fills_mutex_;
  const ClHandle<cl_command_queue> fills_;
};

// Reads what a driver says of a platform or a device: `get` is clGetPlatformInfo or
// clGetDeviceInfo.
template <class Id>
class InfoReader {
 public:
  using Get = cl_int(CL_API_CALL*)(Id, cl_uint, size_t, void*, size_t*);

  InfoReader(Get get, Id id) : get_(get), id_(id) {}

  template <class T>
  T Number(cl_uint what) const {
    T value{};
    Check(get_(id_, what, sizeof(value), &value, nullptr));
    return value;
  }
  std::string Text(cl_uint what) const {
    size_t bytes = 0;
    Check(get_(id_, what, 0, nullptr, &bytes));
    std::string text(bytes, '\0');
    Check(get_(id_, what, bytes, text.data(), nullptr));
    return text.substr(0, text.find('\0'));
  }

 private:
  static void Check(cl_int code) { CheckCl(code, "OpenCL", "asking for the limits of a device"); }

  const Get get_;
  const Id id_;
};

DeviceKind KindOf(cl_device_type type) {
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return DeviceKind::kGpu;
  return (type & CL_DEVICE_TYPE_CPU) != 0 ? DeviceKind::kCpu : DeviceKind::kAccelerator;
}

}  // namespace

DeviceInfo ReadDeviceInfo(const ClFunctions& cl, cl_platform_id platform, cl_device_id device) {
  const InfoReader<cl_platform_id> of_platform(cl.get_platform_info, platform);
  const InfoReader<cl_device_id> read(cl.get_device_info, device);
  DeviceInfo info;
  info.name = Printable(read.Text(CL_DEVICE_NAME));
  info.vendor = Printable(read.Text(CL_DEVICE_VENDOR));
  info.platform = Printable(fmt::format("{}, {}", of_platform.Text(CL_PLATFORM_NAME),
                                        of_platform.Text(CL_PLATFORM_VERSION)),
                            200);
  info.driver = Printable(read.Text(CL_DRIVER_VERSION));
  info.kind = KindOf(read.Number<cl_device_type>(CL_DEVICE_TYPE));
  info.memory_bytes = read.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE);
  info.max_buffer_bytes = read.Number<cl_ulong>(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.local_bytes = read.Number<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE);
  info.compute_units = read.Number<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS);
  info.clock_mhz = read.Number<cl_uint>(CL_DEVICE_MAX_CLOCK_FREQUENCY);
  info.max_group_size = read.Number<size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE);
  info.shares_memory = read.Number<cl_bool>(CL_DEVICE_HOST_UNIFIED_MEMORY) != CL_FALSE;
  info.has_half = read.Text(CL_DEVICE_EXTENSIONS).find("cl_khr_fp16") != std::string::npos;
  return info;
}

std::unique_ptr<Device> OpenClDevice(const ClFunctions& cl, cl_device_id device, DeviceInfo info,
                                     const DeviceOptions& options) {
  return std::make_unique<ClDevice>(cl, device, std::move(info), options);
}

}  // namespace hearth::accel
