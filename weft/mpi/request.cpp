#include "weft/mpi/request.h"

#include <algorithm>
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
  auto& requests = abandoned_requests();
  const std::lock_guard lock(requests.mutex);
  std::erase_if(requests.list, [](AbandonedRequest& entry) { return finished(entry.requests); });
  if (!finished(requests_)) requests.list.push_back({std::move(requests_), std::move(keep_)});
  requests_.clear();
  keep_.reset();
}

std::size_t Request::abandoned_count() {
  auto& requests = abandoned_requests();
  const std::lock_guard lock(requests.mutex);
  std::erase_if(requests.list, [](AbandonedRequest& entry) { return finished(entry.requests); });
  return requests.list.size();
}

}  // namespace weft::mpi
