// Work that ranks do each for themselves and finish together: where one fails, all hear of it and nobody waits.
#pragma once

#include <functional>

#include "weft/collective/call.h"

namespace weft::experiment {

// Collective. What `work` throws on any rank is thrown on all of them.
inline void together(const std::shared_ptr<mpi::Team>& team, const char* what, const std::function<void()>& work) {
  collective::Negotiation talk(what, team->id());
  talk.check(work);
  static_cast<void>(talk.agree(collective::Signature(what), 0, [&] { return std::string(what); }));
}

}  // namespace weft::experiment
