// The spans of this process, thread by thread, while they are recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/trace/span.h"

namespace weft::trace {

struct Event {
  const char* name = nullptr;
  std::int64_t begin_ns = 0;  // of the steady clock
  std::int64_t duration_ns = 0;
  std::int64_t detail = Span::kNoDetail;
};

struct ThreadEvents {
  int number = 0;              // in the order in which threads recorded first
  std::string name;            // as name_thread() said, or empty
  std::vector<Event> events;   // as they ended
  std::int64_t forgotten = 0;  // older ones, for which there was no room
};

// Forgets what was recorded and begins. Each thread keeps its latest `events_per_thread`. Process-wide.
void start_recording(std::size_t events_per_thread = std::size_t{1} << 16);
void stop_recording() noexcept;
// What was recorded so far; recording goes on. Threads that have ended are included.
[[nodiscard]] std::vector<ThreadEvents> recorded();
// How the calling thread is called in what follows.
void name_thread(const std::string& name);

}  // namespace weft::trace
