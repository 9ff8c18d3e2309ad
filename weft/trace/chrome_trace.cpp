#include "weft/trace/chrome_trace.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "weft/files/atomic_file.h"
#include "weft/files/error.h"
#include "weft/mpi/agreement.h"
#include "weft/mpi/message/message_channel.h"
#include "weft/trace/json.h"

namespace weft::trace {
namespace {

constexpr int kRoot = 0;

// A metadata event that names a process or a thread.
std::string name_event(const char* kind, int rank, int thread, const std::string& name) {
  return dump_json({{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}});
}

// A complete event: a span with its start and its duration.
std::string span_event(const Event& event, int rank, int thread, const ClockOffset& clock) {
  Json json{{"ph", "X"},
            {"name", event.name},
            {"pid", rank},
            {"tid", thread},
            {"ts", static_cast<double>(event.begin_ns + clock.offset_ns) / 1000},
            {"dur", static_cast<double>(event.duration_ns) / 1000}};
  if (event.detail != Span::kNoDetail) json["args"] = {{"detail", event.detail}};
  return dump_json(json);
}

std::string thread_name(const ThreadEvents& thread) {
  std::string name = thread.name.empty() ? "thread " + std::to_string(thread.number) : thread.name;
  if (thread.dropped > 0) name += " (first " + std::to_string(thread.dropped) + " events dropped)";
  return name;
}

// Returns the concatenated texts of all ranks on the root, an empty string on other ranks.
std::string gather_text(const std::string& mine, const mpi::MessageChannel& channel) {
  if (channel.rank() != kRoot) {
    channel.send_text(mine, kRoot);
    return {};
  }
  std::string all = mine;
  for (int rank = 1; rank < channel.size(); ++rank) all += channel.receive_text(rank);
  return all;
}

// Returns the failure, if any.
std::optional<mpi::Failure> write(const std::filesystem::path& path, const std::string& events) {
  try {
    files::write_atomically(path, R"({"displayTimeUnit":"ms","traceEvents":[)"
                                  "\n" +
                                      events + "\n]}\n");
  } catch (const files::FileError& error) {
    return mpi::Failure{error.what()};
  }
  return std::nullopt;
}

}  // namespace

std::string chrome_events(const std::vector<ThreadEvents>& threads, int rank, const ClockOffset& clock) {
  std::string text = name_event("process_name", rank, 0, "rank " + std::to_string(rank));
  for (const ThreadEvents& thread : threads) {
    text += ",\n" + name_event("thread_name", rank, thread.number, thread_name(thread));
    for (const Event& event : thread.events) text += ",\n" + span_event(event, rank, thread.number, clock);
  }
  return text;
}

void write_chrome_trace(const std::filesystem::path& path, Communicator& communicator) {
  const auto channel = mpi::MessageChannel::open(communicator, "trace");
  std::string mine = communicator.rank() == kRoot ? "" : ",\n";
  mine += chrome_events(recorded(), communicator.rank(), clock_offset(channel));
  const std::string all = gather_text(mine, channel);
  const auto failure =
      mpi::share_failure(communicator, "write trace", communicator.rank() == kRoot ? write(path, all) : std::nullopt);
  if (failure) throw files::FileError(failure->text);
}

}  // namespace weft::trace
