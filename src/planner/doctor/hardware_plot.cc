#include "planner/doctor/hardware_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "base/units.h"
#include "prepare/shapes/svg.h"

namespace hearth {
namespace {

constexpr double kReadsWidth = 780, kReadsHeight = 470;
constexpr double kReadsLeft = 82, kReadsTop = 76, kReadsPlotWidth = 480, kReadsPlotHeight = 320;
constexpr double kReadsLegendLeft = kReadsLeft + kReadsPlotWidth + 28;
// Told apart by most colour-blind readers (Okabe and Ito 2008).
constexpr std::array<std::string_view, 6> kReadColors = {"#0072b2", "#d55e00", "#009e73",
                                                         "#cc79a7", "#e69f00", "#56b4e9"};
constexpr double kHalfMark = 3;

// Whole powers around all that is drawn.
struct ReadScale {
  double least_log2 = 1e9, most_log2 = 0;    // of bytes
  double least_log10 = 1e9, most_log10 = 0;  // of bytes per second

  explicit ReadScale(const StorageProfile& storage) {
    for (const IoSpeed& read : storage.reads) {
      const double size = std::log2(static_cast<double>(read.block_bytes));
      least_log2 = std::min(least_log2, std::floor(size));
      most_log2 = std::max(most_log2, std::ceil(size));
      const double speed = std::log10(read.bytes_per_s.median);
      least_log10 = std::min(least_log10, std::floor(speed));
      most_log10 = std::max(most_log10, std::ceil(speed));
    }
    most_log2 = std::max(most_log2, least_log2 + 1);
    most_log10 = std::max(most_log10, least_log10 + 1);
  }
  SvgPoint At(double log2_bytes, double log10_speed) const {
    const double x = (log2_bytes - least_log2) / (most_log2 - least_log2);
    const double y = (log10_speed - least_log10) / (most_log10 - least_log10);
    return {kReadsLeft + x * kReadsPlotWidth, kReadsTop + (1 - y) * kReadsPlotHeight};
  }
};

std::string ShortSize(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g}M", bytes / (1 << 20));
  return bytes >= 1 << 10 ? fmt::format("{:g}K", bytes / (1 << 10)) : fmt::format("{:g}", bytes);
}

void DrawReadAxes(Svg& svg, const ReadScale& scale) {
  for (double speed = scale.least_log10; speed <= scale.most_log10; ++speed) {
    const SvgPoint left = scale.At(scale.least_log2, speed);
    svg.Line(left, scale.At(scale.most_log2, speed),
             {.color = speed == scale.least_log10 ? kSvgInk : kSvgFaint});
    svg.Text({left.x - 8, left.y + 4}, fmt::format("{:g}", std::pow(10, speed - 6)),
             {.size = 11, .anchor = "end"});
  }
  for (double size = scale.least_log2; size <= scale.most_log2; ++size) {
    const SvgPoint below = scale.At(size, scale.least_log10);
    svg.Line(below, {below.x, below.y + 5}, {});
    svg.Text({below.x, below.y + 18}, ShortSize(std::exp2(size)), {.size = 11, .anchor = "middle"});
  }
  svg.Line(scale.At(scale.least_log2, scale.least_log10),
           scale.At(scale.least_log2, scale.most_log10), {});
  svg.Text({kReadsLeft + kReadsPlotWidth / 2, kReadsTop + kReadsPlotHeight + 40}, "bytes of a read",
           {.anchor = "middle"});
  svg.Text({kReadsLeft - 58, kReadsTop + kReadsPlotHeight / 2}, "MB per second",
           {.anchor = "middle", .degrees = -90});
}

// Of reads from any core, by range and number in flight.
std::map<std::pair<uint64_t, int>, std::vector<IoSpeed>> ReadCurves(const StorageProfile& storage) {
  std::map<std::pair<uint64_t, int>, std::vector<IoSpeed>> curves;
  for (const IoSpeed& read : storage.reads) {
    if (read.cpu < 0) curves[{read.range_bytes, read.queue_depth}].push_back(read);
  }
  for (auto& [what, curve] : curves) {
    std::sort(curve.begin(), curve.end(),
              [](const IoSpeed& a, const IoSpeed& b) { return a.block_bytes < b.block_bytes; });
  }
  return curves;
}

}  // namespace

std::string PlotReads(const HardwareProfile& profile) {
  const StorageProfile& storage = profile.storage;
  const ReadScale scale(storage);
  Svg svg(kReadsWidth, kReadsHeight, "Speed of random reads");
  svg.Text({24, 30}, "Random reads", {.size = 17, .bold = true});
  svg.Text({24, 50},
           fmt::format("{} in {}, {}{}: medians of {} rounds", FormatSize(storage.file_bytes),
                       storage.directory, storage.backend, storage.is_direct ? ", direct" : "",
                       profile.rounds),
           {});
  DrawReadAxes(svg, scale);
  size_t row = 0;
  for (const auto& [what, curve] : ReadCurves(storage)) {
    const auto& [range, depth] = what;
    const SvgStroke stroke = {
        .color = kReadColors[row % kReadColors.size()], .width = 1.8, .dashed = range != 0};
    std::vector<SvgPoint> points;
    for (const IoSpeed& read : curve) {
      points.push_back(scale.At(std::log2(static_cast<double>(read.block_bytes)),
                                std::log10(read.bytes_per_s.median)));
    }
    svg.Polyline(points, stroke);
    for (const SvgPoint& at : points) {
      svg.Rect({at.x - kHalfMark, at.y - kHalfMark}, 2 * kHalfMark, 2 * kHalfMark, stroke.color);
    }
    const double y = kReadsTop + 14 + 22 * static_cast<double>(row);
    svg.Line({kReadsLegendLeft, y - 4}, {kReadsLegendLeft + 26, y - 4}, stroke);
    svg.Text({kReadsLegendLeft + 34, y},
             range == 0 ? fmt::format("{} at a time", depth)
                        : fmt::format("{}, in {}", depth, ShortSize(static_cast<double>(range))),
             {});
    ++row;
  }
  return svg.Finish();
}

}  // namespace hearth
