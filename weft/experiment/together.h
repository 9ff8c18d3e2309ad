// Work that ranks do each for themselves and finish together: where one fails, all hear of it and nobody waits.
#pragma once

#include <functional>
#include <memory>

#include "weft/mpi/team.h"

namespace weft::experiment {

// Collective. What `work` throws on any rank is thrown on all of them. Nobody leaves before all have come: what follows
// counts on that, so WEFT_CHECK=0 changes nothing here.
void together(const std::shared_ptr<mpi::Team>& team, const char* what, const std::function<void()>& work);

}  // namespace weft::experiment
