// Options for the length of a test, put back when it ends.
#pragma once

#include "weft/mpi/options.h"

namespace weft::mpi {

class ScopedOptions {
 public:
  // change(Options&) edits a copy of the options in force.
  template <class Change>
  explicit ScopedOptions(Change&& change) : before_(options()) {
    Options changed = before_;
    change(changed);
    set_options(changed);
  }
  ~ScopedOptions() { set_options(before_); }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};

}  // namespace weft::mpi
