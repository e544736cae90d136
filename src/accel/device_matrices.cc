#include "accel/device_matrices.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr uint64_t kFloatBytes = 4;  // and of an int32
// Products with more rows than anything else are made of so many tokens at a time.
constexpr int64_t kTokensOfWidest = 8;

std::span<std::byte> RowsAsBytes(const FloatView& rows) {
  if (rows.rows > 1 && rows.stride != rows.cols) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "rows that do not lie one after the other");
  }
  return std::as_writable_bytes(std::span(rows.data, static_cast<size_t>(rows.rows * rows.cols)));
}

// Both row by row where rows lie apart.
void UploadRows(DeviceQueue& queue, const FloatView& from, DeviceBuffer& to) {
  if (from.rows <= 1 || from.stride == from.cols) return queue.Upload(RowsAsBytes(from), to);
  for (int64_t r = 0; r < from.rows; ++r) {
    queue.Upload(RowsAsBytes(from.Rows(r, 1)), to,
                 static_cast<uint64_t>(r * from.cols) * kFloatBytes);
  }
}

void DownloadRows(DeviceQueue& queue, DeviceBuffer& from, const FloatView& to) {
  if (to.rows <= 1 || to.stride == to.cols) return queue.Download(from, 0, RowsAsBytes(to));
  for (int64_t r = 0; r < to.rows; ++r) {
    queue.Download(from, static_cast<uint64_t>(r * to.cols) * kFloatBytes,
                   RowsAsBytes(to.Rows(r, 1)));
  }
}

}  // namespace

// Numbers of each buffer.
struct DeviceMatrices::Scratch {
  explicit Scratch(const DeviceMatricesShape& shape) {
    int64_t columns = shape.hidden, rows = shape.hidden, middle = 0;
    std::vector<int64_t> all;
    for (const auto* matrices : {&shape.matrices, &shape.visitors}) {
      for (const DeviceMatrixShape& matrix : *matrices) {
        columns = std::max(columns, matrix.columns);
        all.push_back(matrix.rows);
      }
    }
    std::sort(all.begin(), all.end());
    // Of an FFN, what gate and up make is no wider than the widest product.
    rows = all.empty() ? rows : all.back();
    middle = shape.hidden == 0 ? 0 : columns;
    const int64_t tokens = shape.max_tokens;
    x = tokens * columns;
    gathered = sum = tokens * shape.hidden;
    gate = up = tokens * middle;
    out = std::max(std::min(tokens, kTokensOfWidest) * rows,
                   tokens * std::min(rows, std::max(columns, shape.hidden)));
    row_list = shape.hidden == 0 ? 0 : tokens;
  }

  int64_t x, gathered, gate, up, out, sum, row_list;

  uint64_t bytes() const {
    return kFloatBytes * static_cast<uint64_t>(x + gathered + gate + up + out + sum + 2 * row_list);
  }
};

uint64_t DeviceMatrices::MatrixBytes(const DeviceMatricesShape& shape) {
  uint64_t bytes = 0;
  for (const DeviceMatrixShape& matrix : shape.matrices) bytes += matrix.bytes();
  return bytes;
}

uint64_t DeviceMatrices::ScratchBytes(const DeviceMatricesShape& shape) {
  return Scratch(shape).bytes();
}

DeviceMatrices::DeviceMatrices(Device& device, DeviceMatricesShape shape)
    : device_(device), shape_(std::move(shape)), vectors_(device) {
  for (const DeviceMatrixShape& matrix : shape_.matrices) {
    kernels_.try_emplace(matrix.type, device, matrix.type);
  }
  for (const DeviceMatrixShape& matrix : shape_.matrices) {
    const auto count = static_cast<uint64_t>(matrix.count);
    const uint64_t biases = count * static_cast<uint64_t>(matrix.rows) * sizeof(float);
    weights_.push_back(device.MakeBuffer("matrices", count * matrix.bytes_of_one()));
    biases_.push_back(matrix.has_bias ? device.MakeBuffer("matrices", biases) : nullptr);
  }
  const Scratch scratch(shape_);
  const auto make = [&](int64_t numbers) {
    const uint64_t bytes = static_cast<uint64_t>(numbers) * kFloatBytes;
    return bytes == 0 ? nullptr : device.MakeBuffer("scratch", bytes);
  };
  x_ = make(scratch.x);
  gathered_ = make(scratch.gathered);
  gate_ = make(scratch.gate);
  up_ = make(scratch.up);
  out_ = make(scratch.out);
  sum_ = make(scratch.sum);
  rows_ = make(scratch.row_list);
  row_weights_ = make(scratch.row_list);
  out_floats_ = scratch.out;
  zeros_.resize(static_cast<size_t>(scratch.sum));
  queue_ = device.MakeQueue();
}

DeviceMatrices::~DeviceMatrices() { Abandon(); }

void DeviceMatrices::Fill(int32_t matrix, uint64_t offset, std::span<const std::byte> bytes) {
  queue_->Upload(bytes, *weights_.at(static_cast<size_t>(matrix)), offset);
  queue_->Finish();
}

void DeviceMatrices::FillBias(int32_t matrix, int64_t index, std::span<const float> bias) {
  queue_->Upload(std::as_bytes(bias), *biases_.at(static_cast<size_t>(matrix)),
                 static_cast<uint64_t>(index) * bias.size_bytes());
  queue_->Finish();
}

DeviceMatrixAt DeviceMatrices::At(int32_t matrix, int64_t index) const {
  if (matrix < 0) return {};
  const auto at = static_cast<size_t>(matrix);
  const DeviceMatrixShape& shape = shape_.matrices.at(at);
  return {.type = shape.type,
          .matrix = {.weights = weights_[at].get(),
                     .rows = shape.rows,
                     .columns = shape.columns,
                     .begin = static_cast<int64_t>(shape.bytes_of_one()) * index},
          .bias = biases_[at].get(),
          .bias_begin = shape.rows * index};
}

void DeviceMatrices::Launch(const DeviceMatrixAt& at, DeviceBuffer& x, int64_t tokens,
                            DeviceBuffer& out) {
  MatrixKernels& kernels = kernels_.try_emplace(at.type, device_, at.type).first->second;
  kernels.Multiply(*queue_, at.matrix, x, tokens, out, way_);
  if (at.bias != nullptr) {
    vectors_.AddToRows(*queue_, *at.bias, at.bias_begin, {&out, tokens, at.matrix.rows});
  }
  products_computed_ += tokens;
}

void DeviceMatrices::Send() { sent_ = queue_->Mark(); }

void DeviceMatrices::Multiply(FloatView x, std::span<const DeviceProduct> products) {
  UploadRows(*queue_, x, *x_);
  tokens_sent_ += x.rows;
  for (const DeviceProduct& product : products) {
    const DeviceMatrix& matrix = product.matrix.matrix;
    if (matrix.columns != x.cols || matrix.rows != product.out.cols || product.out.rows != x.rows) {
      throw Error(ErrorCode::kInternal, "DeviceMatrices", "a product of another shape");
    }
    const int64_t at_once =
        std::max<int64_t>(out_floats_ / std::max<int64_t>(product.out.cols, 1), 1);
    for (int64_t first = 0; first < x.rows; first += at_once) {
      const int64_t count = std::min(at_once, x.rows - first);
      if (first > 0) UploadRows(*queue_, x.Rows(first, count), *x_);
      Launch(product.matrix, *x_, count, *out_);
      DownloadRows(*queue_, *out_, product.out.Rows(first, count));
    }
    if (at_once < x.rows && &product != &products.back()) UploadRows(*queue_, x, *x_);
  }
  Send();
}

void DeviceMatrices::BeginSum(FloatView x) {
  if (x.rows < 1 || x.rows > shape_.max_tokens || x.cols != shape_.hidden) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "tokens that do not fit");
  }
  UploadRows(*queue_, x, *x_);
  tokens_of_sum_ = x.rows;
  tokens_sent_ += x.rows;
  const auto numbers = static_cast<size_t>(x.rows * x.cols);
  queue_->Upload(std::as_bytes(std::span(zeros_).first(numbers)), *sum_);
}

void DeviceMatrices::AddFfn(const DeviceFfn& ffn, std::span<const int32_t> tokens,
                            std::span<const float> weights, const DeviceFfnSeen* seen) {
  const auto count = std::ssize(tokens);
  if (count < 1 || count > tokens_of_sum_ || tokens.size() != weights.size()) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "tokens that are not of the sum");
  }
  const bool is_gated = !ffn.gate.empty();
  const int64_t neurons = ffn.up.matrix.rows;
  queue_->Upload(std::as_bytes(tokens), *rows_);
  queue_->Upload(std::as_bytes(weights), *row_weights_);
  const VectorKernels::RowList list = {rows_.get(), count};
  vectors_.GatherRows(*queue_, *x_, list, shape_.hidden, *gathered_);
  Launch(is_gated ? ffn.gate : ffn.up, *gathered_, count, *gate_);
  if (is_gated) Launch(ffn.up, *gathered_, count, *up_);
  if (seen != nullptr) {
    queue_->Download(*gate_, 0, RowsAsBytes(seen->gate));
    if (is_gated) queue_->Download(*up_, 0, RowsAsBytes(seen->up));
  }
  if (is_gated) {
    vectors_.Activate(*queue_, ffn.activation, *gate_, *up_, count * neurons, *gate_);
  } else {
    vectors_.ActivateAlone(*queue_, ffn.activation, *gate_, count * neurons, *gate_);
  }
  if (seen != nullptr) queue_->Download(*gate_, 0, RowsAsBytes(seen->factors));
  Launch(ffn.down, *gate_, count, *out_);
  vectors_.ScatterAddRows(*queue_, *out_, list, *row_weights_, shape_.hidden, *sum_);
  if (seen == nullptr) return;
  Send();
  Wait();
}

void DeviceMatrices::EndSum(FloatView out) {
  queue_->Download(*sum_, 0, RowsAsBytes(out));
  tokens_of_sum_ = 0;
  Send();
}

void DeviceMatrices::Wait() {
  if (!sent_) return;
  const std::unique_ptr<DeviceEvent> sent = std::move(sent_);
  sent->Wait();
  if (trace_ != nullptr) {
    for (CommandTime& time : queue_->TakeTimes()) {
      trace_->Add({std::move(time.what), TraceSide::kDevice, layer_, tokens_sent_,
                   time.begin_seconds, time.end_seconds});
    }
  }
  tokens_sent_ = 0;
}

void DeviceMatrices::Abandon() noexcept {
  sent_.reset();
  tokens_of_sum_ = tokens_sent_ = 0;
  try {
    if (queue_) queue_->Finish();
  } catch (...) {  // a lost device: nothing of it is in flight any more
  }
}

void DeviceMatrices::Trace(DeviceTrace& trace) {
  queue_ = device_.MakeTimedQueue();
  trace_ = &trace;
}

}  // namespace hearth::accel
