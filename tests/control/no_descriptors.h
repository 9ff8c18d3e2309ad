// Uses up all file descriptors of the process during the lifetime of the object.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "weft/files/file_descriptor.h"

namespace weft::control {

class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &usual_), 0);
    const rlimit few{kFew, usual_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    take_all();
  }
  // Includes descriptors that gRPC's threads have closed meanwhile.
  void take_all() {
    for (int fd = 0; (fd = dup(STDERR_FILENO)) >= 0;) taken_.emplace_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  void give_one_back() { taken_.pop_back(); }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &usual_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  static constexpr rlim_t kFew = 64;  // the limit may be below the number of open descriptors: no more can be opened
  rlimit usual_{};
  std::vector<files::FileDescriptor> taken_;
};

}  // namespace weft::control
