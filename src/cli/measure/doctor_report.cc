#include "cli/measure/doctor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "tensor/weight_tiles.h"

namespace hearth::cli {
namespace {

// "12.3 (11.8-12.9)": a median and what it moved between, in units of `unit`.
std::string SpreadText(const Spread& spread, double unit, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", spread.median / unit, digits, spread.min / unit,
                     digits, spread.max / unit, digits);
}

std::string SizeName(uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

}  // namespace

std::string BatchesText(const DeviceSpeed& device, const std::string& indent,
                        std::optional<double> read_bytes_per_s) {
  if (device.batches.empty() || !device.rates) return "";
  std::string tokens = fmt::format("{}{:<16}", indent, "tokens at once");
  std::string here = fmt::format("{}{:<16}", indent, "processor");
  std::string there = fmt::format("{}{:<16}", indent, "device");
  for (const BatchSpeed& batch : device.batches) {
    tokens += fmt::format("{:>7}", batch.tokens);
    here += fmt::format("{:>7.3g}", batch.processor_macs_per_s / 1e9);
    there += fmt::format("{:>7.3g}", batch.device_macs_per_s / 1e9);
  }
  const double upload = device.rates->upload_bytes_per_s.median;
  const std::optional<int64_t> from = UploadTokens(
      device.batches,
      {.read_bytes_per_s = read_bytes_per_s.value_or(upload), .upload_bytes_per_s = upload});
  return fmt::format(
      "{}\n{}  GMAC/s\n{}  GMAC/s\n{}{:<16}{}\n", tokens, here, there, indent, "uploads",
      from ? fmt::format("pay for prompts from {} tokens on (--device-prompts)", *from)
           : "pay for no prompt");
}

namespace {

// One line; 'hearth devices' has them all.
std::string DeviceLine(const DeviceSpeed& device, const StorageProfile& storage,
                       double read_bytes_per_s) {
  std::string rates = "not measured";
  if (device.rates) {
    rates = fmt::format("reads {:.0f} GB/s, upload {:.1f} GB/s, launch {:.0f} us",
                        device.rates->read_bytes_per_s.median / 1e9,
                        device.rates->upload_bytes_per_s.median / 1e9,
                        device.rates->launch_seconds.median / 1e-6);
  }
  return fmt::format("device {:<7}{} ({}), {}, {}\n", device.index, Printable(device.info.name),
                     accel::NameOf(device.info.kind), FormatSize(device.info.memory_bytes), rates) +
         BatchesText(device, "              ",
                     storage.is_in_memory ? std::nullopt : std::optional(read_bytes_per_s));
}

// The geometry of the largest prompt, and how much longer the solver's take than the fastest.
std::string TilesText(const std::vector<MeasuredTiles>& tiles) {
  if (tiles.empty()) return "";
  double most = 1;
  for (const MeasuredTiles& measured : tiles) {
    most = std::max(most, measured.solved_seconds / measured.seconds);
  }
  const TileGeometry& geometry = tiles.back().tiles.geometry;
  return fmt::format(
      "; prompts in tiles of {} tokens (e_p) and {} rows (h_p), {}; the solver's tiles take at "
      "most "
      "{:.0f}% longer than the fastest",
      geometry.panel_tokens, geometry.tiles * TileLayout::kRows,
      geometry.unpacks ? "unpacked first" : "packed", 100 * (most - 1));
}

std::string MachineText(const HardwareProfile& profile) {
  const std::string lockable = profile.mlock_limit_bytes
                                   ? FormatSize(*profile.mlock_limit_bytes) + " of it lockable"
                                   : "all of it lockable";
  std::string accelerators;
  for (const std::string& name : profile.accelerators) {
    accelerators += (accelerators.empty() ? "" : ", ") + Printable(name);
  }
  std::string out =
      fmt::format("processor     {}, {} of {} usable, load {:.1f}\n", Printable(profile.cpu_model),
                  profile.cpus, profile.machine_cpus, profile.load_average);
  out += fmt::format("kernels       {}{}\n", profile.isa, TilesText(profile.tiles));
  out += fmt::format("memory        {}, {} free, {}\n", FormatSize(profile.memory_bytes),
                     FormatSize(profile.available_memory_bytes), lockable);
  out += fmt::format("accelerators  {}\n", accelerators.empty() ? "none" : accelerators);
  for (const DeviceSpeed& device : profile.devices) {
    out += DeviceLine(device, profile.storage, UploadReadRate(profile));
  }
  return out;
}

std::string CoresText(const HardwareProfile& profile) {
  std::string out = fmt::format("\n{:<8}{:>24}{:>24}{:>24}\n", "core", "int8 G multiply-adds/s",
                                "float32 GFLOP/s", "ns per look-up");
  for (const CoreSpeed& core : profile.cores) {
    out += fmt::format("{:<8}{:>24}{:>24}{:>24}{}\n", core.cpu,
                       SpreadText(core.int8_macs_per_s, 1e9, 0),
                       SpreadText(core.float_ops_per_s, 1e9, 0),
                       SpreadText(core.look_up_seconds, 1e-9, 0), core.is_big ? "" : "  little");
  }
  return out;
}

std::string ThreadsText(const HardwareProfile& profile) {
  std::string out = fmt::format("\n{:<22}", "threads");
  for (const ThreadSpeed& speed : profile.threads) out += fmt::format("{:>22}", speed.threads);
  out += "\n";
  const auto row = [&](const char* name, Spread ThreadSpeed::*quantity, double unit, int digits) {
    out += fmt::format("{:<22}", name);
    for (const ThreadSpeed& speed : profile.threads) {
      out += fmt::format("{:>22}", SpreadText(speed.*quantity, unit, digits));
    }
    out += "\n";
  };
  row("memory reads GB/s", &ThreadSpeed::read_bytes_per_s, 1e9, 1);
  row("matrix x token GB/s", &ThreadSpeed::matrix_bytes_per_s, 1e9, 1);
  row("neurons, dots GB/s", &ThreadSpeed::dot_bytes_per_s, 1e9, 1);
  row("neurons, adds GB/s", &ThreadSpeed::add_bytes_per_s, 1e9, 1);
  row("narrow, dots GB/s", &ThreadSpeed::narrow_dot_bytes_per_s, 1e9, 1);
  row("narrow, adds GB/s", &ThreadSpeed::narrow_add_bytes_per_s, 1e9, 1);
  row("checks GB/s", &ThreadSpeed::check_bytes_per_s, 1e9, 1);
  row("prompts GMAC/s", &ThreadSpeed::prompt_macs_per_s, 1e9, 0);
  row("section us", &ThreadSpeed::section_seconds, 1e-6, 1);
  row("disk beside it GB/s", &ThreadSpeed::busy_io_bytes_per_s, 1e9, 2);
  row("neurons beside it GB/s", &ThreadSpeed::busy_neuron_bytes_per_s, 1e9, 2);
  row("overlap of ranges %", &ThreadSpeed::range_share, 0.01, 0);
  return out;
}

// What tells the columns of reads apart.
struct ReadColumn {
  int depth;
  uint64_t range;
  int cpu;
  bool operator<(const ReadColumn& other) const {
    return std::tie(range, cpu, depth) < std::tie(other.range, other.cpu, other.depth);
  }
  bool Has(const IoSpeed& read) const {
    return read.queue_depth == depth && read.range_bytes == range && read.cpu == cpu;
  }
  std::string Name() const {
    if (cpu >= 0) return fmt::format("core {}", cpu);
    if (range != 0) return "in " + SizeName(range);
    return fmt::format("{} deep", depth);
  }
};

// Medians of reads, by size (down) and what else tells them apart (right).
std::string ReadsTable(const std::string& title, const std::vector<IoSpeed>& reads,
                       Spread IoSpeed::*quantity, double unit) {
  std::set<ReadColumn> columns;
  std::set<uint64_t> blocks;
  for (const IoSpeed& read : reads) {
    columns.insert({read.queue_depth, read.range_bytes, read.cpu});
    blocks.insert(read.block_bytes);
  }
  std::string out = fmt::format("{:<14}", title);
  for (const ReadColumn& column : columns) out += fmt::format("{:>12}", column.Name());
  out += "\n";
  for (const uint64_t block : blocks) {
    out += fmt::format("{:<14}", SizeName(block));
    for (const ReadColumn& column : columns) {
      const auto found = std::find_if(reads.begin(), reads.end(), [&](const IoSpeed& read) {
        return read.block_bytes == block && column.Has(read);
      });
      out += found == reads.end() ? fmt::format("{:>12}", "-")
                                  : fmt::format("{:>12.1f}", ((*found).*quantity).median / unit);
    }
    out += "\n";
  }
  return out;
}

std::string StorageText(const HardwareProfile& profile) {
  const StorageProfile& storage = profile.storage;
  std::string out = fmt::format(
      "\nstorage       {}: {} read with {}, {}, aligned to {}{}\n",
      Printable(storage.directory, 200), FormatSize(storage.file_bytes), storage.backend,
      storage.is_direct ? "past the page cache" : "not direct", SizeName(storage.alignment_bytes),
      storage.note.empty() ? "" : " (" + Printable(storage.note, 200) + ")");
  std::vector<IoSpeed> anywhere, somewhere;
  for (const IoSpeed& read : storage.reads) {
    (read.range_bytes == 0 && read.cpu < 0 ? anywhere : somewhere).push_back(read);
  }
  out += ReadsTable("MB/s", anywhere, &IoSpeed::bytes_per_s, 1e6) + "\n";
  out += ReadsTable("us/read", anywhere, &IoSpeed::cpu_seconds_per_read, 1e-6);
  if (somewhere.empty()) return out;
  return out + "\n" +
         ReadsTable(fmt::format("MB/s, {} deep", somewhere.front().queue_depth), somewhere,
                    &IoSpeed::bytes_per_s, 1e6);
}

}  // namespace

std::string HardwareText(const HardwareProfile& profile) {
  std::string out = MachineText(profile) + CoresText(profile) + ThreadsText(profile) +
                    StorageText(profile) +
                    fmt::format(
                        "\nmedians of {} rounds (and least to most); us/read is processor "
                        "time; random places of the whole file unless said\n",
                        profile.rounds);
  for (const std::string& warning : profile.warnings) {
    out += (&warning == &profile.warnings.front() ? "\n" : "") + ("warning: " + warning) + "\n";
  }
  return out;
}

}  // namespace hearth::cli
