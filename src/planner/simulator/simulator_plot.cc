#include "planner/simulator/simulator_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "prepare/shapes/svg.h"

namespace hearth {
namespace {

constexpr double kSimWidth = 760, kSimHeight = 450;
constexpr double kSimLeft = 72, kSimTop = 56, kSimPlotWidth = 520, kSimPlotHeight = 320;
constexpr double kSimLegend = kSimLeft + kSimPlotWidth + 28;
constexpr double kSimMark = 3;  // half a mark's side
// Told apart by most colour-blind readers (Okabe and Ito 2008), in the order of pipelines.
constexpr std::array<std::string_view, 5> kSimColors = {"#0072b2", "#e69f00", "#cc79a7", "#d55e00",
                                                        "#009e73"};

// A round number that five steps of reach the value.
double AxisEnd(double value) {
  const double step = value / 5;
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double round : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    if (round * power >= step) return 5 * round * power;
  }
  return 50 * power;
}

}  // namespace

std::string PlotSimulation(const std::string& title, const std::vector<SimPoint>& points) {
  double most_memory = 0, most_speed = 0;
  for (const SimPoint& point : points) {
    most_memory = std::max(most_memory, point.memory_gb);
    most_speed = std::max(most_speed, point.tok_s);
  }
  const double memory_end = AxisEnd(most_memory), speed_end = AxisEnd(most_speed);
  const auto at = [&](double memory, double speed) {
    return SvgPoint{kSimLeft + memory / memory_end * kSimPlotWidth,
                    kSimTop + (1 - speed / speed_end) * kSimPlotHeight};
  };
  Svg svg(kSimWidth, kSimHeight, title);
  svg.Text({24, 30}, title, {.size = 17, .bold = true});
  for (int i = 0; i <= 5; ++i) {
    const SvgPoint left = at(0, speed_end * i / 5);
    svg.Line(left, at(memory_end, speed_end * i / 5), {.color = i == 0 ? kSvgInk : kSvgFaint});
    svg.Text({left.x - 8, left.y + 4}, fmt::format("{:.3g}", speed_end * i / 5),
             {.size = 11, .anchor = "end"});
    const SvgPoint below = at(memory_end * i / 5, 0);
    svg.Text({below.x, below.y + 18}, fmt::format("{:.3g}", memory_end * i / 5),
             {.size = 11, .anchor = "middle"});
  }
  svg.Line(at(0, 0), at(0, speed_end), {});
  svg.Text({kSimLeft + kSimPlotWidth / 2, kSimTop + kSimPlotHeight + 42}, "memory, GB",
           {.anchor = "middle"});
  svg.Text({kSimLeft - 48, kSimTop + kSimPlotHeight / 2}, "tokens per second",
           {.anchor = "middle", .degrees = -90});
  double legend = kSimTop + 14;
  for (size_t begin = 0; begin < points.size(); legend += 22) {
    const SimPipeline pipeline = points[begin].pipeline;
    const SvgStroke stroke{.color = kSimColors[static_cast<size_t>(pipeline)], .width = 2};
    std::vector<SvgPoint> curve;
    for (; begin < points.size() && points[begin].pipeline == pipeline; ++begin) {
      curve.push_back(at(points[begin].memory_gb, points[begin].tok_s));
      svg.Rect({curve.back().x - kSimMark, curve.back().y - kSimMark}, 2 * kSimMark, 2 * kSimMark,
               stroke.color);
    }
    svg.Polyline(curve, stroke);
    svg.Line({kSimLegend, legend - 4}, {kSimLegend + 26, legend - 4}, stroke);
    svg.Text({kSimLegend + 34, legend}, SimPipelineName(pipeline), {});
  }
  return svg.Finish();
}

}  // namespace hearth
