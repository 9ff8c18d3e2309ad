#include "weft/mpi/communicator.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "weft/mpi/environment.h"
#include "weft/mpi/error.h"

namespace weft::mpi {
namespace {

// Whether a grid has a cell for 1 to `ranks` ranks; looks at each extent, because a product of them may overflow.
bool fits_on(int ranks, const std::vector<int>& extents) {
  std::int64_t cells = 1;
  for (const int extent : extents) {
    if (extent < 1) return false;
    cells *= extent;
    if (cells > ranks) return false;
  }
  return true;
}

// "2 x 3".
std::string join(const std::vector<int>& extents) {
  std::string text;
  for (const int extent : extents) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace

CommunicatorView::CommunicatorView(MPI_Comm comm) : comm_(comm) {
  if (comm == MPI_COMM_NULL) return;
  check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

CommunicatorView CommunicatorView::world() {
  Environment::ensure();
  return CommunicatorView(MPI_COMM_WORLD);
}

std::string CommunicatorView::name() const {
  if (!valid()) return "(none)";
  char text[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  check(MPI_Comm_get_name(comm_, text, &length), "MPI_Comm_get_name", comm_);
  return {text};
}

Communicator CommunicatorView::dup(const std::string& name) const {
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm_, &result), "MPI_Comm_dup", comm_);
  return Communicator::adopt(result, name.empty() ? this->name() : name);
}

Communicator CommunicatorView::split(int color, int key) const {
  MPI_Comm result = MPI_COMM_NULL;
  const int mpi_color = color < 0 ? MPI_UNDEFINED : color;
  check(MPI_Comm_split(comm_, mpi_color, key, &result), "MPI_Comm_split", comm_);
  return Communicator::adopt(result, name() + "/split" + std::to_string(color));
}

Communicator CommunicatorView::split_shared() const {
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &result), "MPI_Comm_split_type", comm_);
  return Communicator::adopt(result, name() + "/node");
}

Communicator CommunicatorView::cart(const std::vector<int>& extents, const std::vector<bool>& periodic,
                                    bool reorder) const {
  std::vector<int> wrap(periodic.begin(), periodic.end());
  if (wrap.empty()) wrap.assign(extents.size(), 0);
  if (wrap.size() != extents.size()) {
    throw std::invalid_argument("weft: cart wants one periodic flag per extent: " + std::to_string(extents.size()) +
                                " extents, " + std::to_string(wrap.size()) + " flags");
  }
  if (!fits_on(size_, extents)) {
    throw std::invalid_argument("weft: cart of " + join(extents) + " cells does not fit on " + std::to_string(size_) +
                                " ranks");
  }
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Cart_create(comm_, static_cast<int>(extents.size()), extents.data(), wrap.data(), reorder ? 1 : 0, &result),
        "MPI_Cart_create", comm_);
  return Communicator::adopt(result, name() + "/cart");
}

void CommunicatorView::barrier() const { check(MPI_Barrier(comm_), "MPI_Barrier", comm_); }

bool CommunicatorView::is_cart() const {
  int topology = MPI_UNDEFINED;
  check(MPI_Topo_test(comm_, &topology), "MPI_Topo_test", comm_);
  return topology == MPI_CART;
}

CommunicatorView::Grid CommunicatorView::grid() const {
  int count = 0;
  check(MPI_Cartdim_get(comm_, &count), "MPI_Cartdim_get", comm_);
  const auto dimensions = static_cast<std::size_t>(count);
  std::vector<int> wrap(dimensions);
  Grid result{std::vector<int>(dimensions), {}, std::vector<int>(dimensions)};
  check(MPI_Cart_get(comm_, count, result.extents.data(), wrap.data(), result.coordinates.data()), "MPI_Cart_get",
        comm_);
  result.periodic.assign(wrap.begin(), wrap.end());
  return result;
}

CommunicatorView::Neighbours CommunicatorView::neighbours(int dimension) const {
  Neighbours result{MPI_PROC_NULL, MPI_PROC_NULL};
  check(MPI_Cart_shift(comm_, dimension, 1, &result.before, &result.after), "MPI_Cart_shift", comm_);
  return result;
}

int CommunicatorView::tag_upper_bound() const {
  int* bound = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &found), "MPI_Comm_get_attr");
  return found != 0 ? *bound : 32767;  // the least that the standard promises
}

Communicator::Communicator(Communicator&& other) noexcept : CommunicatorView(other) { other.leak(); }

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    release();
    CommunicatorView::operator=(other);
    other.leak();
  }
  return *this;
}

Communicator Communicator::adopt(MPI_Comm comm, const std::string& name) {
  Communicator result;
  static_cast<CommunicatorView&>(result) = CommunicatorView(comm);
  if (!result.valid()) return result;
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", comm);
  if (!name.empty()) {
    check(MPI_Comm_set_name(comm, name.substr(0, MPI_MAX_OBJECT_NAME - 1).c_str()), "MPI_Comm_set_name", comm);
  }
  return result;
}

Communicator Communicator::from_fortran(int handle) {
  Environment::ensure();
#if defined(MPI_ABI_VERSION)
  const MPI_Comm comm = MPI_Comm_fromint(handle);  // the standard ABI's name for the same thing
#else
  const MPI_Comm comm = MPI_Comm_f2c(handle);
#endif
  if (comm == MPI_COMM_NULL) throw std::invalid_argument("weft: the handle names no communicator (MPI_COMM_NULL)");
  return CommunicatorView(comm).dup();
}

MPI_Comm Communicator::leak() noexcept {
  const MPI_Comm comm = comm_;
  static_cast<CommunicatorView&>(*this) = CommunicatorView();
  return comm;
}

void Communicator::release() noexcept {
  if (comm_ != MPI_COMM_NULL && Environment::alive()) MPI_Comm_free(&comm_);
  leak();
}

}  // namespace weft::mpi
