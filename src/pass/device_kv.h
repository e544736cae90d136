// Attention of layers that have their keys and values on a device too, beside their matrices: the
// host's KV pages have everything, and the device gets copies of what it lacks. So sequences are
// forked, cut, saved and spilled as they are without a device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pass/activations.h"
#include "pass/device/device_pages.h"
#include "pass/device/device_weights.h"
#include "pass/pass_rows.h"
#include "pass/pass_seam.h"

namespace hearth {

// One thread at a time. For a pass: Begin, SetAngles of every rotary embedding, Run of each layer
// that Has names, End; after a pass that failed the next Begin.
class DeviceKv {
 public:
  // device: may be null, or have no keys and values; then no layer attends there.
  explicit DeviceKv(const DeviceWeights* device) : device_(device) {}
  ~DeviceKv() { Settle(); }
  DeviceKv(const DeviceKv&) = delete;
  DeviceKv& operator=(const DeviceKv&) = delete;

  // A pass of these rows begins: copies pages that the device lacks. Where it is not wanted there,
  // or needs more pages than the device has room for, the processor attends. Throws what the device
  // does, and Error(kIo) where a page cannot be read.
  void Begin(const PassRows& rows, bool is_wanted);
  // By layer, whether the device attends in this pass; empty: none does.
  const std::vector<bool>& layers() const { return layers_; }
  bool Has(int64_t layer) const { return !layers_.empty() && layers_[static_cast<size_t>(layer)]; }
  // The angles of the rows, of the rotary embedding with this number in RopesOf.
  void SetAngles(int64_t table, FloatView cosines, FloatView sines);
  // Computes a.block_out = W_o attention(a.normed), and leaves the new keys and values, for the
  // host's pages, in a.k and a.v. Waits. Shows `seam` what W_o multiplies. Throws what the device
  // does.
  void Run(int64_t layer, const Activations& a, const PassSeam& seam);
  void End();

 private:
  // Waits until commands of a pass that failed no longer use memory of this object.
  void Settle() noexcept;
  bool ListPages(const PassRows& rows);
  void CopyPages(KvPool& pool);

  const DeviceWeights* device_;
  bool in_pass_ = false;
  std::vector<bool> layers_;
  // Of the pass: its pages, sequence after sequence, and rows as the device takes them.
  std::vector<PageUse> pages_;
  std::vector<KvPageId> ids_;
  std::vector<int32_t> slots_, begins_, positions_;
};

}  // namespace hearth
