// Matrices that are not on a device and are multiplied there all the same, for prompts: read from
// the model's files, uploaded and multiplied unit by unit, the three at once (P2 §4.1.1).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "accel/device_matrices.h"

namespace hearth {

// What is uploaded as one.
enum class UnitKind : uint8_t { kAttention, kExpert, kShared };

struct UploadUnit {
  UnitKind kind = UnitKind::kAttention;
  int64_t layer = 0;
  int64_t expert = 0;  // of kExpert; 0 of a dense layer's FFN

  bool operator==(const UploadUnit&) const = default;
};

// Its matrices: q, k, v and the output's; or gate (empty of an FFN of two), up and down.
using UnitMatrices = std::array<accel::DeviceMatrixAt, 4>;

// One thread at a time. For a pass: Begin, Take and Done of units in the order in which a pass
// comes to them (some may be left out), End.
class Uploads {
 public:
  virtual ~Uploads() = default;
  // Whether a prompt of so many tokens in a pass is worth it.
  virtual bool IsFor(int64_t tokens) const = 0;
  // Whether a unit comes this way. Others are on the device.
  virtual bool Has(const UploadUnit& unit) const = 0;
  virtual void Begin() = 0;
  // Waits until the unit is in the device's memory, where it stays until Done. Throws Error(kIo)
  // where a file cannot be read and what the device throws.
  virtual UnitMatrices Take(const UploadUnit& unit) = 0;
  // The unit that was taken last may be overwritten after this event.
  virtual void Done(std::unique_ptr<accel::DeviceEvent> used) = 0;
  // Also after an error; nothing is on its way then.
  virtual void End() noexcept = 0;
};

}  // namespace hearth
