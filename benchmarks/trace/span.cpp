// The cost of a span while recording is off and on, compared with an empty loop.
#include "benchmarks/timing.h"
#include "weft/mpi/environment.h"
#include "weft/trace/recording.h"

namespace {

constexpr int kSpans = 1'000'000;

// Prevents the compiler from removing the loop.
void keep(int& value) { asm volatile("" : "+r"(value)); }

void empty_loop() {
  for (int i = 0; i < kSpans; ++i) keep(i);
}

void spans() {
  for (int i = 0; i < kSpans; ++i) {
    const weft::trace::Span span("benchmark", i);
    keep(i);
  }
}

void recorded_spans() {
  weft::trace::start_recording();
  spans();
  weft::trace::stop_recording();
}

}  // namespace

int main(int argc, char** argv) {
  const weft::mpi::Environment environment(&argc, &argv);
  const auto times = weft::benchmarks::compare({{"empty", empty_loop}, {"off", spans}, {"on", recorded_spans}}, 1, 11,
                                               weft::mpi::CommView::world());
  const double each = 1000.0 / kSpans;
  weft::benchmarks::report("trace/span/off", times[1] * each, "empty loop", times[0] * each, "ns");
  weft::benchmarks::report("trace/span/recorded", times[2] * each, "empty loop", times[0] * each, "ns");
  return 0;
}
