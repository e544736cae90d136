#include "accel/device_matrices.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr uint64_t kFloatBytes = 4;  // and of an int32
// Products with more rows than anything else are made of so many tokens at a time.
constexpr int64_t kTokensOfWidest = 8;

}  // namespace

// Numbers of each buffer.
struct DeviceMatrices::Scratch {
  explicit Scratch(const DeviceMatricesShape& shape) {
    int64_t widest_in = shape.hidden, widest_out = shape.hidden;
    for (const auto* matrices : {&shape.matrices, &shape.visitors}) {
      for (const DeviceMatrixShape& matrix : *matrices) {
        widest_in = std::max(widest_in, matrix.columns);
        widest_out = std::max(widest_out, matrix.rows);
      }
    }
    const int64_t tokens = shape.max_tokens;
    const bool has_ffns = shape.hidden > 0;
    x = tokens * widest_in;
    sum = tokens * shape.hidden;  // and what is gathered
    // What gate and up make is what down takes in.
    middle = has_ffns ? tokens * widest_in : 0;
    out = std::max(std::min(tokens, kTokensOfWidest) * widest_out,
                   tokens * std::min(widest_out, widest_in));
    row_list = has_ffns ? tokens : 0;
  }

  int64_t x, sum, middle, out, row_list;

  uint64_t bytes() const {
    return kFloatBytes * static_cast<uint64_t>(x + 2 * sum + 2 * middle + out + 2 * row_list);
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
    : device_(device), shape_(std::move(shape)), vectors_(device), commands_(device) {
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
  gathered_ = make(scratch.sum);
  gate_ = make(scratch.middle);
  up_ = make(scratch.middle);
  out_ = make(scratch.out);
  sum_ = make(scratch.sum);
  rows_ = make(scratch.row_list);
  row_weights_ = make(scratch.row_list);
  out_floats_ = scratch.out;
}

void DeviceMatrices::Fill(int32_t matrix, uint64_t offset, std::span<const std::byte> bytes) {
  commands_.queue().Upload(bytes, *weights_.at(static_cast<size_t>(matrix)), offset);
  commands_.queue().Finish();
}

void DeviceMatrices::FillBias(int32_t matrix, int64_t index, std::span<const float> bias) {
  commands_.queue().Upload(std::as_bytes(bias), *biases_.at(static_cast<size_t>(matrix)),
                           static_cast<uint64_t>(index) * bias.size_bytes());
  commands_.queue().Finish();
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
                            DeviceBuffer& out, std::optional<MatmulWay> way) {
  MatrixKernels& kernels = kernels_.try_emplace(at.type, device_, at.type).first->second;
  kernels.Multiply(commands_.queue(), at.matrix, x, tokens, out, way.value_or(way_));
  if (at.bias != nullptr) {
    vectors_.AddToRows(commands_.queue(), *at.bias, at.bias_begin, {&out, tokens, at.matrix.rows});
  }
  products_computed_ += tokens;
}

int64_t DeviceMatrices::TokensAtOnce(std::span<const DeviceProduct> products) const {
  int64_t widest = 1;
  for (const DeviceProduct& product : products) widest = std::max(widest, product.out.cols);
  return std::max<int64_t>(out_floats_ / widest, 1);
}

void DeviceMatrices::Multiply(FloatView x, std::span<const DeviceProduct> products) {
  commands_.AddTokens(x.rows);
  const int64_t at_once = TokensAtOnce(products);
  for (int64_t first = 0; first < x.rows; first += at_once) {
    const int64_t count = std::min(at_once, x.rows - first);
    commands_.UploadRows(x.Rows(first, count), *x_);
    for (const DeviceProduct& product : products) {
      const DeviceMatrix& matrix = product.matrix.matrix;
      if (matrix.columns != x.cols || matrix.rows != product.out.cols ||
          product.out.rows != x.rows) {
        throw Error(ErrorCode::kInternal, "DeviceMatrices", "a product of another shape");
      }
      Launch(product.matrix, *x_, count, *out_);
      commands_.DownloadRows(*out_, product.out.Rows(first, count));
    }
  }
  commands_.Send();
}

void DeviceMatrices::BeginSum(FloatView x) {
  if (x.rows < 1 || x.rows > shape_.max_tokens || x.cols != shape_.hidden) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "tokens that do not fit");
  }
  tokens_of_sum_ = x.rows;
  commands_.AddTokens(x.rows);
  commands_.UploadRows(x, *x_);
  vectors_.Clear(commands_.queue(), *sum_, x.rows * x.cols);
}

void DeviceMatrices::AddFfn(const DeviceFfn& ffn, std::span<const int32_t> tokens,
                            std::span<const float> weights, const DeviceFfnWatcher* watcher) {
  const auto count = std::ssize(tokens);
  if (count < 1 || count > tokens_of_sum_ || tokens.size() != weights.size()) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "tokens that are not of the sum");
  }
  DeviceQueue& queue = commands_.queue();
  queue.Upload(std::as_bytes(tokens), *rows_);
  queue.Upload(std::as_bytes(weights), *row_weights_);
  const VectorKernels::RowList list = {rows_.get(), count};
  vectors_.GatherRows(queue, *x_, list, shape_.hidden, *gathered_);
  DeviceBuffer& made = RunFfn(ffn, *gathered_, count, watcher);
  vectors_.ScatterAddRows(queue, made, list, *row_weights_, shape_.hidden, *sum_);
}

DeviceBuffer& DeviceMatrices::RunFfn(const DeviceFfn& ffn, DeviceBuffer& x, int64_t tokens,
                                     const DeviceFfnWatcher* watcher) {
  if (tokens < 1 || tokens > shape_.max_tokens || ffn.down.matrix.rows != shape_.hidden) {
    throw Error(ErrorCode::kInternal, "DeviceMatrices", "an FFN that there is no room for");
  }
  const bool is_gated = !ffn.gate.empty();
  const int64_t numbers = tokens * ffn.up.matrix.rows;
  DeviceQueue& queue = commands_.queue();
  Launch(is_gated ? ffn.gate : ffn.up, x, tokens, *gate_);
  if (is_gated) Launch(ffn.up, x, tokens, *up_);
  if (watcher != nullptr) {
    commands_.DownloadRows(*gate_, watcher->gate);
    if (is_gated) commands_.DownloadRows(*up_, watcher->up);
    commands_.Send();
    commands_.Wait();
    watcher->on_gate_up();
  }
  if (is_gated) {
    vectors_.Activate(queue, ffn.activation, *gate_, *up_, numbers, *gate_);
  } else {
    vectors_.ActivateAlone(queue, ffn.activation, *gate_, numbers, *gate_);
  }
  if (watcher != nullptr) {
    commands_.DownloadRows(*gate_, watcher->gate);
    commands_.Send();
    commands_.Wait();
    watcher->on_factors();
  }
  Launch(ffn.down, *gate_, tokens, *out_);
  return *out_;
}

void DeviceMatrices::EndSum(FloatView out) {
  commands_.DownloadRows(*sum_, out);
  tokens_of_sum_ = 0;
  commands_.Send();
}

void DeviceMatrices::Abandon() noexcept {
  tokens_of_sum_ = 0;
  commands_.Abandon();
}

}  // namespace hearth::accel
