// The pool as torch's dispatcher sees it, for Python.
#include <torch/library.h>

#include <tuple>

#include "weft/memory/allocator.h"

namespace weft::memory {
namespace {

std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t> facts() {
  const Statistics s = BlockPool::of_process().statistics();
  return {s.live_bytes, s.cached_bytes, s.peak_bytes, s.hits, s.misses, s.evictions};
}

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("start_pooling", [](double of_peak, std::int64_t at_least) { start_pooling({of_peak, at_least}); });
  m.def("stop_pooling", &stop_pooling);
  m.def("is_pooling", [] { return is_pooling(); });
  m.def("pool_statistics", &facts);
  m.def("empty_pool", [] { BlockPool::of_process().trim(); });
}

}  // namespace
}  // namespace weft::memory
