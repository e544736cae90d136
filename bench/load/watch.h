// The server's own word on how it is, over time: /metrics, and the system's of its process.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "load/client.h"
#include "load/samples.h"

namespace hearth::load {

// What was seen. Seconds count from the window's start.
struct Sightings {
  std::map<std::string, std::vector<Point>> series;
  std::map<std::string, int64_t> errors;  // samples that could not be had
};

// What of /metrics is kept, under the names of Sightings::series.
std::map<std::string, double> SeriesOf(const std::map<std::string, double>& metrics);

// rss, its anonymous part, threads and open files of a process; empty where there is none.
std::map<std::string, double> SeriesOfProcess(int pid);

// Looks every `interval` and at the window's end, then returns. Never throws.
boost::asio::awaitable<void> Watch(const Target& target, const Window& window,
                                   std::chrono::milliseconds interval, std::optional<int> pid,
                                   Sightings& sightings);

}  // namespace hearth::load
