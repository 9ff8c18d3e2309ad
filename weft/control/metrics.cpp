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

// Writes families one after the other: each name once, then its samples, as Prometheus wants them.
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
  writer.family("uptime_seconds", "gauge", "Since the switch was started.");
  writer.sample("", status.uptime_s);
  writer.family("epoch", "gauge", "Differs between any two starts.");
  writer.sample("", status.jobs.epoch);
  writer.family("slots", "gauge", "Slots of all jobs together, at most.");
  writer.sample("", whole(status.jobs.slots));
  writer.family("slots_assigned", "gauge", "Slots of live jobs.");
  writer.sample("", whole(status.jobs.slots_assigned));
  writer.family("slot_bytes", "gauge", "Memory for the slots of all jobs together, at most.");
  writer.sample("", status.jobs.bytes);
  writer.family("slot_bytes_assigned", "gauge", "Memory of the slots of live jobs.");
  writer.sample("", status.jobs.bytes_assigned);
  writer.family("unfiltered_ports", "gauge", "UDP ports with more workers than the kernel's filter can name.");
  writer.sample("", whole(status.jobs.unfiltered_ports));
  writer.family("jobs_total", "counter", "Jobs by what became of their admission.");
  writer.sample("result=\"admitted\"", status.jobs.jobs_admitted);
  writer.sample("result=\"refused\"", status.jobs.jobs_refused);
  writer.sample("result=\"ended\"", status.jobs.jobs_ended);
  writer.family("packets_lost_on_sending_total", "counter",
                "Of packets_out_total, those that the kernel did not take.");
  writer.sample("", status.jobs.lost_on_sending);
  writer.family("control_connections", "gauge", "Open connections of the control plane.");
  writer.sample("", std::uint64_t{status.connections});
  writer.family("control_events_total", "counter", "Set-ups admitted, challenged or refused, and connections dropped.");
  for (int i = 0; i < static_cast<int>(Event::kCount); ++i) {
    const auto event = static_cast<Event>(i);
    writer.sample("event=\"" + std::string(name_of(event)) + "\"", status.counters->of(event));
  }
}

void write_rejections(Writer& writer, const Status& status) {
  writer.family("packets_rejected_total", "counter", "Packets dropped, by cause; job=\"\" for those of no job.");
  for (std::size_t i = 0; i < aggregation::kRejectedCauses; ++i) {
    const auto cause = static_cast<Rejected>(i);
    const std::string why = std::string(",cause=\"") + aggregation::describe(cause) + "\"";
    writer.sample("job=\"\",session=\"\"" + why, status.jobs.strays.rejected_for(cause));
    for (const JobStatus& job : status.jobs.jobs) writer.sample(label(job) + why, job.counters.rejected_for(cause));
  }
}

void write_jobs(Writer& writer, const Status& status) {
  per_job(writer, status, "job_workers", "gauge", "Workers of a job.",
          [](const JobStatus& j) { return whole(j.workers); });
  per_job(writer, status, "job_workers_placed", "gauge", "Workers whose address is known.",
          [](const JobStatus& j) { return whole(j.workers_placed); });
  per_job(writer, status, "job_slots", "gauge", "A job's quota of slots.",
          [](const JobStatus& j) { return whole(j.slots); });
  per_job(writer, status, "job_slots_busy", "gauge", "Slots that hold a sum that is not complete.",
          [](const JobStatus& j) { return whole(j.slots_busy); });
  per_job(writer, status, "job_idle_seconds", "gauge", "Since a packet of the job was accepted.",
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
  per_job(writer, status, "sums_total", counter, "Slots completed.",
          [](const JobStatus& j) { return j.counters.sums; });
  per_job(writer, status, "duplicates_total", counter, "Packets that were counted in already.",
          [](const JobStatus& j) { return j.counters.duplicates; });
  per_job(writer, status, "answered_total", counter, "Of those, answered with their sum again.",
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
