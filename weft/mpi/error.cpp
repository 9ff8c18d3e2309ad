#include "weft/mpi/error.h"

#include "weft/mpi/message/truncated.h"

namespace weft::mpi {
namespace {

std::string describe(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return "";
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  int rank = -1;
  MPI_Comm_get_name(comm, name, &length);
  MPI_Comm_rank(comm, &rank);
  return " on rank " + std::to_string(rank) + " of communicator '" + name + "'";
}

}  // namespace

PeerLost::PeerLost(int rank, const std::string& cause, bool terminated)
    : SharedFailure("weft.PeerLost: rank " + std::to_string(rank) + " failed: " + cause),
      rank_(rank),
      terminated_(terminated) {}

void throw_mpi_error(int rc, const char* function, MPI_Comm comm) {
  int error_class = MPI_ERR_UNKNOWN;
  char text[MPI_MAX_ERROR_STRING] = "no text";
  int length = 0;
  MPI_Error_class(rc, &error_class);
  MPI_Error_string(rc, text, &length);
  const std::string what = std::string("weft.MpiError: ") + function + " failed" + describe(comm) + ": " + text +
                           " (class " + std::to_string(error_class) + ")";
  if (error_class == MPI_ERR_TRUNCATE) throw Truncated(what);
  throw MpiError(what);
}

}  // namespace weft::mpi
