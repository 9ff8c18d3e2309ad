// ScopedOptions: changes the options of weft/node for a scope and restores them at its end.
#pragma once

#include "weft/node/options.h"

namespace weft::node {

class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& changed) : before_(options()) { set_options(changed); }
  ~ScopedOptions() { set_options(before_); }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};

}  // namespace weft::node
