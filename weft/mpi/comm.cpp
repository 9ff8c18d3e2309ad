#include "weft/mpi/comm.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// Whether the grid has between 1 and `ranks` cells. Checks after each factor because the whole product may overflow.
bool fits_on(int ranks, const std::vector<int>& extents) {
  std::int64_t cells = 1;
  for (const int extent : extents) {
    if (extent < 1) return false;
    cells *= extent;
    if (cells > ranks) return false;
  }
  return true;
}

// Returns text such as "2 x 3".
std::string join(const std::vector<int>& extents) {
  std::string text;
  for (const int extent : extents) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace

CommView::CommView(MPI_Comm comm) : comm_(comm) {
  if (comm == MPI_COMM_NULL) return;
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

CommView CommView::world() {
  Environment::ensure();
  return CommView(MPI_COMM_WORLD);
}

std::string CommView::name() const {
  if (!valid()) return "(none)";
  char text[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  check(MPI_Comm_get_name(comm_, text, &length), "MPI_Comm_get_name", comm_);
  return {text};
}

UniqueComm CommView::dup(const std::string& name) const {
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm_, &result), "MPI_Comm_dup", comm_);
  return UniqueComm::adopt(result, name.empty() ? this->name() : name);
}

UniqueComm CommView::split(int color, int key) const {
  MPI_Comm result = MPI_COMM_NULL;
  const int mpi_color = color < 0 ? MPI_UNDEFINED : color;
  check(MPI_Comm_split(comm_, mpi_color, key, &result), "MPI_Comm_split", comm_);
  return UniqueComm::adopt(result, name() + "/split" + std::to_string(color));
}

UniqueComm CommView::split_shared() const {
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &result), "MPI_Comm_split_type", comm_);
  return UniqueComm::adopt(result, name() + "/node");
}

UniqueComm CommView::cart(const std::vector<int>& extents, const std::vector<bool>& periodic, bool reorder) const {
  std::vector<int> wrap(periodic.begin(), periodic.end());
  if (wrap.empty()) wrap.assign(extents.size(), 0);
  if (wrap.size() != extents.size()) {
    throw std::invalid_argument("weft: cart needs one periodic flag per extent, got " + std::to_string(extents.size()) +
                                " extents and " + std::to_string(wrap.size()) + " flags");
  }
  if (!fits_on(size_, extents)) {
    throw std::invalid_argument("weft: cart of " + join(extents) + " cells does not fit on " + std::to_string(size_) +
                                " ranks");
  }
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Cart_create(comm_, static_cast<int>(extents.size()), extents.data(), wrap.data(), reorder ? 1 : 0, &result),
        "MPI_Cart_create", comm_);
  return UniqueComm::adopt(result, name() + "/cart");
}

void CommView::barrier() const { check(MPI_Barrier(comm_), "MPI_Barrier", comm_); }

bool CommView::is_cart() const {
  int topology = MPI_UNDEFINED;
  check(MPI_Topo_test(comm_, &topology), "MPI_Topo_test", comm_);
  return topology == MPI_CART;
}

CommView::CartTopology CommView::cart_topology() const {
  int count = 0;
  check(MPI_Cartdim_get(comm_, &count), "MPI_Cartdim_get", comm_);
  const auto dimensions = static_cast<std::size_t>(count);
  std::vector<int> wrap(dimensions);
  CartTopology result{std::vector<int>(dimensions), {}, std::vector<int>(dimensions)};
  check(MPI_Cart_get(comm_, count, result.extents.data(), wrap.data(), result.coordinates.data()), "MPI_Cart_get",
        comm_);
  result.periodic.assign(wrap.begin(), wrap.end());
  return result;
}

CommView::Neighbours CommView::neighbours(int dimension) const {
  Neighbours result{MPI_PROC_NULL, MPI_PROC_NULL};
  check(MPI_Cart_shift(comm_, dimension, 1, &result.before, &result.after), "MPI_Cart_shift", comm_);
  return result;
}

int CommView::tag_upper_bound() const {
  int* bound = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &found), "MPI_Comm_get_attr");
  return found != 0 ? *bound : 32767;  // the minimum that the standard guarantees
}

UniqueComm::UniqueComm(UniqueComm&& other) noexcept : CommView(other) { other.leak(); }

UniqueComm& UniqueComm::operator=(UniqueComm&& other) noexcept {
  if (this != &other) {
    release();
    CommView::operator=(other);
    other.leak();
  }
  return *this;
}

UniqueComm UniqueComm::adopt(MPI_Comm comm, const std::string& name) {
  UniqueComm result;
  static_cast<CommView&>(result) = CommView(comm);
  if (!result.valid()) return result;
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", comm);
  if (!name.empty()) {
    check(MPI_Comm_set_name(comm, name.substr(0, MPI_MAX_OBJECT_NAME - 1).c_str()), "MPI_Comm_set_name", comm);
  }
  return result;
}

UniqueComm UniqueComm::from_fortran(int handle) {
  Environment::ensure();
#if defined(MPI_ABI_VERSION)
  const MPI_Comm comm = MPI_Comm_fromint(handle);  // the name of MPI_Comm_f2c in the standard ABI
#else
  const MPI_Comm comm = MPI_Comm_f2c(handle);
#endif
  if (comm == MPI_COMM_NULL)
    throw std::invalid_argument("weft: expected the handle of a communicator, got MPI_COMM_NULL");
  return CommView(comm).dup();
}

MPI_Comm UniqueComm::leak() noexcept {
  const MPI_Comm comm = comm_;
  static_cast<CommView&>(*this) = CommView();
  return comm;
}

void UniqueComm::release() noexcept {
  if (comm_ != MPI_COMM_NULL && Environment::alive()) MPI_Comm_free(&comm_);
  leak();
}

}  // namespace weft::mpi
