// The operation and call site in errors and warnings.
#include "weft/mpi/waiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "tests/mpi/scoped_options.h"
#include "weft/mpi/communicator.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

void wait_in_vain(const char* operation) {
  const ScopedOptions hurry([](Options& options) { options.timeout = std::chrono::milliseconds(20); });
  Waiter waiter({.operation = operation});
  for (;;) waiter.idle();
}

std::string timeout_text(const char* operation) {
  try {
    wait_in_vain(operation);
  } catch (const TimeoutError& error) {
    return error.what();
  }
  return "no timeout";
}

TEST(OperationScope, OutermostScopeNamesTheCallAndItsSite) {
  const OperationScope outer("all_reduce", nullptr);
  EXPECT_THAT(current_operation(), StartsWith("all_reduce called from "));
  EXPECT_THAT(call_site(), HasSubstr("waiter_test.cpp:"));
  {
    const OperationScope inner("broadcast", nullptr);
    EXPECT_THAT(current_operation(), StartsWith("all_reduce "));
  }
  EXPECT_THAT(current_operation(), StartsWith("all_reduce "));
}

TEST(OperationScope, IsClearedAtItsEnd) {
  {
    const OperationScope scope("gather", nullptr);
  }
  EXPECT_THAT(current_operation(), Not(HasSubstr("gather")));
  EXPECT_THAT(current_operation(), Not(HasSubstr("waiter_test.cpp")));
}

TEST(OperationScope, AppliesToItsThreadOnly) {
  const OperationScope scope("scan", nullptr);
  std::string elsewhere;
  std::thread([&] { elsewhere = current_operation(); }).join();
  EXPECT_THAT(elsewhere, Not(HasSubstr("scan")));
}

TEST(OperationScope, BindingsCanProvideCallSites) {
  set_call_site_hook([](unsigned long, char* text, std::size_t capacity) -> std::size_t {
    const std::string site = "train.py:12";
    return site.copy(text, capacity);
  });
  EXPECT_EQ(call_site(), "train.py:12");
  set_call_site_hook([](unsigned long, char*, std::size_t) -> std::size_t { return 0; });
  const OperationScope scope("scan", nullptr);
  EXPECT_THAT(call_site(), HasSubstr("waiter_test.cpp:"));
  set_call_site_hook(nullptr);
}

TEST(Waiter, TimeoutNamesTheCurrentScope) {
  const auto communicator = Communicator::world();
  const OperationScope scope("all_to_all", communicator.get());
  const std::string text = timeout_text("agreement");
  EXPECT_THAT(text, HasSubstr("all_to_all called from"));
  EXPECT_THAT(text, HasSubstr("rank " + std::to_string(communicator->rank()) + " "));
}

// A wait outside of any operation used to leave its name set, and later operations were reported under it.
TEST(Waiter, ClearsItsNameAfterATimeout) {
  EXPECT_THAT(timeout_text("first wait"), HasSubstr("first wait"));
  EXPECT_THAT(current_operation(), Not(HasSubstr("first wait")));
  EXPECT_THAT(timeout_text("second wait"), HasSubstr("second wait"));
  const OperationScope scope("reduce", nullptr);
  EXPECT_THAT(current_operation(), StartsWith("reduce "));
}

// If ranks outnumber cores, MPI yields the core in each test. The waiter used to check the clock only after 2,000
// tests, so waits ended seconds too late.
TEST(Waiter, TimesOutInTimeEvenIfTestsAreSlow) {
  using std::chrono::milliseconds;
  Waiter waiter({.operation = "test wait", .timeout = milliseconds(50)});
  int tests = 0;
  EXPECT_THROW(
      for (;; ++tests) {
        std::this_thread::sleep_for(milliseconds(2));
        waiter.idle();
      },
      TimeoutError);
  EXPECT_LE(tests, 50 / 2 + 16);
}

TEST(Waiter, WarnsOnceBeforeTheTimeout) {
  const ScopedOptions hurry([](Options& options) {
    options.timeout = std::chrono::milliseconds(300);
    options.warn_after = std::chrono::milliseconds(20);
  });
  testing::internal::CaptureStderr();
  Waiter waiter({.operation = "test wait"});
  EXPECT_THROW(for (;;) waiter.idle(), TimeoutError);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("has waited"));
  EXPECT_THAT(said, HasSubstr("test wait"));
  EXPECT_EQ(said.find("has waited"), said.rfind("has waited"));
}

}  // namespace
}  // namespace weft::mpi
