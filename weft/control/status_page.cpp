#include <cinttypes>
#include <cstdio>
#include <numeric>

#include "weft/control/status.h"

namespace weft::control {
namespace {

using aggregation::JobStatus;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result.push_back(letter);
    }
  }
  return result;
}

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", value);
  return text;
}

std::string seconds(aggregation::Duration duration) { return seconds(std::chrono::duration<double>(duration).count()); }

std::uint64_t rejected(const aggregation::PacketCounters& counters) {
  return std::accumulate(counters.rejected.begin(), counters.rejected.end(), std::uint64_t{0});
}

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string text = "<tr>";
  for (const std::string& cell : cells) text += std::string("<") + tag + ">" + cell + "</" + tag + ">";
  return text + "</tr>\n";
}

std::string job_row(const JobStatus& job) {
  const auto& counted = job.counters;
  return row(
      {escaped(job.name.empty() ? "(no name)" : job.name), hexadecimal(job.session),
       job.mode == aggregation::Mode::kExtended ? "extended" : "classic",
       std::to_string(job.workers_placed) + " of " + std::to_string(job.workers),
       std::to_string(job.slots_busy) + " of " + std::to_string(job.slots), std::to_string(counted.sums),
       std::to_string(counted.packets_in), std::to_string(counted.packets_out), std::to_string(counted.duplicates),
       std::to_string(rejected(counted)), seconds(job.age), seconds(job.idle)},
      "td");
}

}  // namespace

std::string page(const Status& status) {
  std::string text =
      "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>weft-switch</title><style>"
      "body{font:15px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
      "td:first-child,th:first-child{text-align:left}</style></head><body><h1>weft-switch</h1>\n";
  text += "<p>weft " + escaped(status.version) + ", up " + seconds(status.uptime_s) + ", epoch " +
          hexadecimal(status.jobs.epoch) + "; " + std::to_string(status.jobs.slots_assigned) + " of " +
          std::to_string(status.jobs.slots) + " slots assigned; " + std::to_string(status.connections) +
          " control connections; " + std::to_string(rejected(status.jobs.strays)) +
          " packets without a job dropped.</p>\n<table>\n";
  text += row({"job", "session", "packets", "workers joined", "slots busy", "sums", "packets in", "packets out",
               "duplicates", "rejected", "age", "idle"},
              "th");
  for (const JobStatus& job : status.jobs.jobs) text += job_row(job);
  text += "</table>\n<p>Control plane:";
  for (int i = 0; i < static_cast<int>(Event::kCount); ++i) {
    const auto event = static_cast<Event>(i);
    text += std::string(" ").append(name_of(event)) + " " + std::to_string(status.counters->of(event)) + ";";
  }
  return text + "</p>\n<p><a href=\"/metrics\">/metrics</a> for Prometheus</p></body></html>\n";
}

}  // namespace weft::control
