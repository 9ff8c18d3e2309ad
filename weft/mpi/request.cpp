#include "weft/mpi/request.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

struct AbandonedRequest {
  std::vector<MPI_Request> requests;
  std::shared_ptr<void> keep;
};

struct AbandonedRequests {
  std::mutex mutex;
  std::vector<AbandonedRequest> list;
  std::atomic<std::size_t> count{0};
};

AbandonedRequests& abandoned_requests() {
  static auto* requests = new AbandonedRequests();  // never destroyed: MPI may still write into the buffers
  return *requests;
}

bool finished(std::vector<MPI_Request>& requests) {
  int flag = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE);
  return flag != 0;
}

}  // namespace

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    abandon();
    requests_ = std::move(other.requests_);
    keep_ = std::move(other.keep_);
    status_ = other.status_;
  }
  return *this;
}

MPI_Request* Request::add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

bool Request::test() {
  while (!requests_.empty()) {
    int flag = 0;
    const int rc = MPI_Test(&requests_.back(), &flag, &status_);
    if (rc != MPI_SUCCESS) {
      requests_.pop_back();
      check(rc, "MPI_Test");
    }
    if (flag == 0) return false;
    requests_.pop_back();
  }
  keep_.reset();
  return true;
}

void Request::wait(const WaitContext& context) {
  if (test()) return;
  Waiter waiter(context);
  while (!test()) waiter.idle();
}

void Request::abandon() noexcept {
  if (requests_.empty() || !Environment::alive()) return;
  if (!finished(requests_)) {
    auto& abandoned = abandoned_requests();
    const std::lock_guard lock(abandoned.mutex);
    abandoned.list.push_back({std::move(requests_), std::move(keep_)});
    ++abandoned.count;
  }
  requests_.clear();
  keep_.reset();
}

void Request::free_abandoned() {
  auto& abandoned = abandoned_requests();
  if (abandoned.count == 0 || !Environment::alive()) return;
  std::vector<AbandonedRequest> done;  // freed after unlocking: the memory of a tensor may belong to Python
  const std::lock_guard lock(abandoned.mutex);
  const auto first_done = std::partition(abandoned.list.begin(), abandoned.list.end(),
                                         [](AbandonedRequest& entry) { return !finished(entry.requests); });
  done.assign(std::make_move_iterator(first_done), std::make_move_iterator(abandoned.list.end()));
  abandoned.list.erase(first_done, abandoned.list.end());
  abandoned.count = abandoned.list.size();
}

std::size_t Request::abandoned_count() {
  free_abandoned();
  return abandoned_requests().count;
}

}  // namespace weft::mpi
