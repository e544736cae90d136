// The second half of SparsePrefill: what the neurons of a block add to the outputs of its tokens.
#include <algorithm>
#include <cstring>

#include "ops/sparse_prefill_job.h"
#include "tensor/row_groups.h"

namespace hearth {

// Adds all rows to the 512 columns of a group, for tokens [first, last).
void SparsePrefill::AddGroup(const Job& job, int64_t group, int64_t first, int64_t last,
                             FloatView out) {
  const RowsView& down = job.ffn.down;
  const auto add = job.table.rows_to_sums[static_cast<size_t>(down.dtype)];
  float* sums = sums_ + (group * job.tokens + first) * kRowGroupWeights;
  if (job.range.is_first && job.begin == 0) {
    std::memset(sums, 0, static_cast<size_t>((last - first) * kRowGroupWeights) * sizeof(float));
  }
  const int32_t* begins = begins_ + first;
  for (int64_t n = job.begin; n < job.end; n += job.rows_of_sums) {
    const int64_t next = n + job.rows_of_sums;
    add({job.Rows(down, n, job.rows_of_sums), job.hidden, group, last - first, begins, places_,
         factors_, sums,
         next < job.end ? job.Rows(down, next, job.rows_of_sums) : kernels::RowList{}});
    begins += job.tokens + 1;
  }
  if (!job.range.is_last || job.end < job.neurons) return;
  const int64_t blocks = std::min<int64_t>(kRowGroupBlocks, job.hidden / 32 - 16 * group);
  for (int64_t t = first; t < last; ++t) {
    job.table.sums_to_columns(sums, last - first, t - first, blocks,
                              out.row(t) + group * kRowGroupWeights);
  }
}

// The same where a row's columns lie in order: they are added where they belong.
void SparsePrefill::AddGroupOfFloats(const Job& job, int64_t group, int64_t first, int64_t last,
                                     FloatView out) {
  const RowsView& down = job.ffn.down;
  const auto type = static_cast<size_t>(down.dtype);
  const int64_t column = group * kRowGroupWeights;
  const int64_t columns = std::min(kRowGroupWeights, job.hidden - column);
  const bool is_first = job.range.is_first && job.begin == 0;
  for (int64_t t = first; is_first && t < last; ++t) {
    std::memset(out.row(t) + column, 0, static_cast<size_t>(columns) * sizeof(float));
  }
  const int32_t* begins = begins_ + first;
  for (int64_t n = job.begin; n < job.end; n += job.rows_of_sums) {
    kernels::RowList rows = job.Rows(down, n, job.rows_of_sums);
    rows.base += RowBytes(down.dtype, static_cast<size_t>(column));
    job.table.float_rows_to_tokens[type]({rows, columns, last - first, begins, begins + 1, places_,
                                          factors_, out.row(first) + column, out.stride});
    begins += job.tokens + 1;
  }
}

// A thread adds all rows to a group of columns, for some tokens.
void SparsePrefill::AddDown(Compute& compute, const Job& job, FloatView out) {
  const bool has_groups = HasRowGroups(job.ffn.down.dtype);
  const int64_t groups = RowGroupCount(job.hidden);
  // Unpacking a row serves all tokens that go by, so they are split only to give everybody work.
  const int64_t parts =
      std::clamp<int64_t>((2 * compute.threads() + groups - 1) / groups, 1, job.tokens);
  compute.team().ParallelFor(groups * parts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t group = item / parts, part = item % parts;
      const int64_t first = part * job.tokens / parts, last = (part + 1) * job.tokens / parts;
      if (has_groups) {
        AddGroup(job, group, first, last, out);
      } else {
        AddGroupOfFloats(job, group, first, last, out);
      }
    }
  });
}

}  // namespace hearth
