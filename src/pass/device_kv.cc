#include "pass/device_kv.h"

#include <algorithm>

namespace hearth {
namespace {

// Of the first `tokens` tokens of a sequence, those in its page number `page`.
int32_t TokensIn(int64_t page, int64_t tokens) {
  const int64_t first = page * KvLayout::kPageTokens;
  return static_cast<int32_t>(std::clamp<int64_t>(tokens - first, 0, KvLayout::kPageTokens));
}

}  // namespace

void DeviceKv::Begin(const PassRows& rows, bool is_wanted) {
  layers_.clear();
  if (device_ == nullptr || device_->attention == nullptr) return;
  Settle();
  const bool has_room = ListPages(rows);
  if (!device_->kv_pages->Begin(pages_, is_wanted && has_room)) return;
  CopyPages(rows.sequences.front()->pool());
  in_pass_ = true;
  slots_.clear();
  for (const PageUse& page : pages_) slots_.push_back(device_->kv_pages->SlotOf(page));
  device_->attention->BeginPass(
      {.slots = slots_,
       .begins = begins_,
       .positions = positions_,
       // Of prompts there are rows enough.
       .parts = rows.kind == PassKind::kPrefill ? 1 : accel::AttentionKernels::kParts});
  for (const DeviceLayer& layer : device_->layers) layers_.push_back(layer.attends());
}

void DeviceKv::Settle() noexcept {
  if (in_pass_) device_->matrices->Abandon();
  in_pass_ = false;
}

// Returns whether the lists are short enough.
bool DeviceKv::ListPages(const PassRows& rows) {
  pages_.clear();
  ids_.clear();
  begins_.clear();
  positions_.clear();
  for (size_t r = 0; r < rows.sequences.size(); ++r) {
    const KvSequence& sequence = *rows.sequences[r];
    if (r == 0 || rows.sequences[r - 1] != &sequence) {
      const std::span<const KvPageId> ids = sequence.page_ids();
      for (int64_t i = 0; i < std::ssize(ids); ++i) {
        const KvPageId id = ids[static_cast<size_t>(i)];
        pages_.push_back({.birth = sequence.BirthOf(id),
                          .before = TokensIn(i, rows.positions[r]),
                          .after = TokensIn(i, sequence.length())});
        ids_.push_back(id);
      }
      begins_.push_back(static_cast<int32_t>(pages_.size() - ids.size()));
    } else {
      begins_.push_back(begins_.back());
    }
    positions_.push_back(static_cast<int32_t>(rows.positions[r]));
  }
  return std::ssize(pages_) <= accel::DeviceAttention::MostPages(device_->attention->shape());
}

void DeviceKv::CopyPages(KvPool& pool) {
  accel::DeviceAttention& attention = *device_->attention;
  const std::span<std::byte> staging = device_->kv_staging;
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (device_->kv_pages->HasCopy(pages_[i])) continue;
    const int32_t slot = device_->kv_pages->SlotOf(pages_[i]);
    for (size_t l = 0; l < device_->layers.size(); ++l) {
      const DeviceLayer& layer = device_->layers[l];
      if (!layer.attends()) continue;
      pool.CopyOut(ids_[i], pool.layout().KeysOffset(static_cast<int64_t>(l), 0), staging);
      attention.UploadPage(layer.attention, slot, staging);
      attention.Finish();
    }
    device_->kv_pages->Copied(pages_[i]);
  }
}

void DeviceKv::SetAngles(int64_t table, FloatView cosines, FloatView sines) {
  if (!layers_.empty()) device_->attention->SetAngles(table, cosines, sines);
}

void DeviceKv::Run(int64_t layer, const Activations& a, const PassSeam& seam) {
  accel::DeviceAttentionOut to = {.keys = a.k, .values = a.v};
  if (seam.is_watched()) {
    to.attended = a.attended;
    to.on_attended = [&] { seam.Saw(layer, MatrixInput::kAttentionOutput, a.attended); };
  }
  const auto number = static_cast<size_t>(device_->layer(layer).attention);
  accel::DeviceMatrices& matrices = *device_->matrices;
  matrices.SetLayer(layer);
  try {
    device_->attention->Run(device_->attention_layers[number], a.normed, to, a.block_out);
    matrices.Wait();
  } catch (...) {
    matrices.Abandon();
    throw;
  }
}

void DeviceKv::End() {
  if (!layers_.empty()) device_->kv_pages->End(pages_);
  in_pass_ = false;
}

}  // namespace hearth
