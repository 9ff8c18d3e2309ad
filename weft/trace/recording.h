// Recording of the spans of this process, per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/trace/span.h"

namespace weft::trace {

struct Event {
  const char* name = nullptr;
  std::int64_t begin_ns = 0;  // time on the steady clock
  std::int64_t duration_ns = 0;
  std::int64_t detail = Span::kNoDetail;
};

struct ThreadEvents {
  int number = 0;    // position in the list: "main" first, then in the order in which threads started recording
  std::string name;  // set by name_thread(), or empty
  std::vector<Event> events;  // ordered by their end
  std::int64_t dropped = 0;   // older events that were overwritten
};

// Discards all recorded events and starts recording in all threads, with a span for every communicating operation. Each
// thread keeps its latest `events_per_thread` events.
void start_recording(std::size_t events_per_thread = std::size_t{1} << 16);
void stop_recording() noexcept;
// Returns the events recorded so far, including those of threads that have ended. Recording continues.
[[nodiscard]] std::vector<ThreadEvents> recorded();
// Names the calling thread; the first thread of the process is "main". If the thread has not recorded anything yet and
// a thread of the same name has ended, it continues that thread's events: a thread that is restarted repeatedly stays
// one row in the trace.
void name_thread(const std::string& name);

}  // namespace weft::trace
