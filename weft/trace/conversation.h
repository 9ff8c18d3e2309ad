// Messages of the trace's own between the ranks of a team, whose waits end where a rank is gone.
#pragma once

#include <cstdint>
#include <string>

#include "weft/mpi/team.h"

namespace weft::trace {

class Conversation {
 public:
  // Collective: all ranks agree to talk about the same `subject`, a literal, before anything is sent. As all else here
  // it throws TimeoutError for a rank that does not come, and PeerLost for one that failed elsewhere.
  Conversation(mpi::Team& team, const char* subject);

  [[nodiscard]] int rank() const noexcept { return team_.rank(); }
  [[nodiscard]] int size() const noexcept { return team_.size(); }

  void send(const std::string& bytes, int dest) const;
  // As many bytes as the other rank sends.
  [[nodiscard]] std::string receive(std::int64_t bytes, int source) const;
  // With its length in front.
  void send_text(const std::string& text, int dest) const;
  [[nodiscard]] std::string receive_text(int source) const;

 private:
  mpi::Team& team_;
  const char* subject_;
  int tag_;
};

// A number as bytes, and back.
[[nodiscard]] std::string bytes_of(std::int64_t number);
[[nodiscard]] std::int64_t number_in(const std::string& bytes, std::size_t index = 0);

}  // namespace weft::trace
