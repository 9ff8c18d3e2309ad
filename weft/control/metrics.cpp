#include <cinttypes>
#include <cstdio>

#include "weft/control/status.h"

namespace weft::control {
namespace {

using aggregation::JobStatus;
using aggregation::Rejected;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\\' || letter == '"') result.push_back('\\');
    if (letter == '\n') {
      result += "\\n";
    } else {
      result.push_back(letter);
    }
  }
  return result;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

// Writes metric families in Prometheus' order: the name once, then its samples.
class Writer {
 public:
  void family(const char* name, const char* kind, const char* help) {
    name_ = name;
    text_ += "# HELP weft_switch_" + name_ + " " + help + "\n# TYPE weft_switch_" + name_ + " " + kind + "\n";
  }
  void sample(const std::string& labels, std::uint64_t value) { add(labels, std::to_string(value)); }
  void sample(const std::string& labels, double value) { add(labels, number(value)); }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  void add(const std::string& labels, const std::string& value) {
    text_ += "weft_switch_" + name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
  }
  std::string name_;
  std::string text_;
};

std::string label(const JobStatus& job) {
  char session[24];
  std::snprintf(session, sizeof(session), "%016" PRIx64, job.session);
  return "job=\"" + escaped(job.name) + "\",session=\"" + session + "\"";
}

template <class Value>
void per_job(Writer& writer, const Status& status, const char* name, const char* kind, const char* help, Value value) {
  writer.family(name, kind, help);
  for (const JobStatus& job : status.jobs.jobs) writer.sample(label(job), value(job));
}

double seconds(aggregation::Duration duration) { return std::chrono::duration<double>(duration).count(); }
std::uint64_t whole(int value) { return static_cast<std::uint64_t>(value); }

void write_switch(Writer& writer, const Status& status) {
  writer.family("uptime_seconds", "gauge", "Time since the start of the switch.");
  writer.sample("", status.uptime_s);
  writer.family("epoch", "gauge", "Random number that identifies this run of the switch.");
  writer.sample("", status.jobs.epoch);
  writer.family("slots", "gauge", "Maximum number of slots of all jobs.");
  writer.sample("", whole(status.jobs.slots));
  writer.family("slots_assigned", "gauge", "Slots assigned to live jobs.");
  writer.sample("", whole(status.jobs.slots_assigned));
  writer.family("slot_bytes", "gauge", "Maximum memory for the slots of all jobs.");
  writer.sample("", status.jobs.bytes);
  writer.family("slot_bytes_assigned", "gauge", "Memory assigned to the slots of live jobs.");
  writer.sample("", status.jobs.bytes_assigned);
  writer.family("unfiltered_ports", "gauge", "UDP ports with more workers than a kernel filter can name.");
  writer.sample("", whole(status.jobs.unfiltered_ports));
  writer.family("jobs_total", "counter", "Jobs admitted, refused and ended.");
  writer.sample("result=\"admitted\"", status.jobs.jobs_admitted);
  writer.sample("result=\"refused\"", status.jobs.jobs_refused);
  writer.sample("result=\"ended\"", status.jobs.jobs_ended);
  writer.family("packets_lost_on_sending_total", "counter",
                "Packets counted in packets_out_total that the kernel did not accept.");
  writer.sample("", status.jobs.lost_on_sending);
  writer.family("control_connections", "gauge", "Open connections of the control plane.");
  writer.sample("", std::uint64_t{status.connections});
  writer.family("control_events_total", "counter",
                "Requests admitted, challenged or refused, and connections dropped.");
  for (int i = 0; i < static_cast<int>(Event::kCount); ++i) {
    const auto event = static_cast<Event>(i);
    writer.sample("event=\"" + std::string(name_of(event)) + "\"", status.counters->of(event));
  }
}

void write_rejections(Writer& writer, const Status& status) {
  writer.family("packets_rejected_total", "counter", "Packets dropped, by cause; job=\"\" for packets without a job.");
  for (std::size_t i = 0; i < aggregation::kRejectedCauses; ++i) {
    const auto cause = static_cast<Rejected>(i);
    const std::string why = std::string(",cause=\"") + aggregation::describe(cause) + "\"";
    writer.sample("job=\"\",session=\"\"" + why, status.jobs.strays.rejected_for(cause));
    for (const JobStatus& job : status.jobs.jobs) writer.sample(label(job) + why, job.counters.rejected_for(cause));
  }
}

void write_jobs(Writer& writer, const Status& status) {
  per_job(writer, status, "job_workers", "gauge", "Number of workers of a job.",
          [](const JobStatus& j) { return whole(j.workers); });
  per_job(writer, status, "job_workers_placed", "gauge", "Workers whose address is known.",
          [](const JobStatus& j) { return whole(j.workers_placed); });
  per_job(writer, status, "job_slots", "gauge", "A job's quota of slots.",
          [](const JobStatus& j) { return whole(j.slots); });
  per_job(writer, status, "job_slots_busy", "gauge", "Slots with an incomplete sum.",
          [](const JobStatus& j) { return whole(j.slots_busy); });
  per_job(writer, status, "job_idle_seconds", "gauge", "Time since the last accepted packet of the job.",
          [](const JobStatus& j) { return seconds(j.idle); });
  const char* counter = "counter";
  per_job(writer, status, "packets_in_total", counter, "Packets received.",
          [](const JobStatus& j) { return j.counters.packets_in; });
  per_job(writer, status, "packets_out_total", counter, "Packets sent.",
          [](const JobStatus& j) { return j.counters.packets_out; });
  per_job(writer, status, "bytes_in_total", counter, "UDP payload received.",
          [](const JobStatus& j) { return j.counters.bytes_in; });
  per_job(writer, status, "bytes_out_total", counter, "UDP payload sent.",
          [](const JobStatus& j) { return j.counters.bytes_out; });
  per_job(writer, status, "sums_total", counter, "Completed sums.", [](const JobStatus& j) { return j.counters.sums; });
  per_job(writer, status, "duplicates_total", counter, "Packets that had already been added.",
          [](const JobStatus& j) { return j.counters.duplicates; });
  per_job(writer, status, "answered_total", counter, "Duplicates that were answered with the result.",
          [](const JobStatus& j) { return j.counters.answered; });
}

}  // namespace

std::string metrics(const Status& status) {
  Writer writer;
  write_switch(writer, status);
  write_jobs(writer, status);
  write_rejections(writer, status);
  return std::move(writer).text();
}

}  // namespace weft::control
