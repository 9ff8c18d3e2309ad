// ScopedOptions: changes options for a scope and restores them at its end.
#pragma once

#include "weft/mpi/options.h"

namespace weft::mpi {

class ScopedOptions {
 public:
  // change(Options&) edits a copy of the current options.
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
