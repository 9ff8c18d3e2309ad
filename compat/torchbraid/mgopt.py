"""Multigrid optimization over the depth of a network, and nested iteration, with torchbraid's interface.

``weft.multilevel`` implements the algorithm.
"""

from ._multilevel.criteria import tb_mgopt_cross_ent, tb_mgopt_cross_ent_plus_continuity, tb_mgopt_regression
from ._multilevel.line_searches import tb_adam_no_ls, tb_simple_backtrack_ls, tb_simple_ls, tb_simple_weighting
from ._multilevel.printing import check_has_args, compute_levels, root_print, unpack_arg
from ._multilevel.solver import mgopt_solver
from ._multilevel.tensors import (
    get_adam_momentum,
    get_params,
    tensor_list_AXPY,
    tensor_list_deep_copy,
    tensor_list_dot,
    write_params_inplace,
)
from ._multilevel.training import compute_fwd_bwd_pass, compute_fwd_pass, test, train_epoch
from ._multilevel.transfers import (
    tb_get_injection_interp_params,
    tb_get_injection_restrict_params,
    tb_get_linear_interp_params,
    tb_get_linear_restrict_params,
    tb_injection_interp_network_state,
    tb_injection_restrict_adam_state,
    tb_injection_restrict_network_state,
    tb_parallel_get_injection_interp_params,
    tb_parallel_get_injection_restrict_params,
)

__all__ = [
    "check_has_args",
    "compute_fwd_bwd_pass",
    "compute_fwd_pass",
    "compute_levels",
    "get_adam_momentum",
    "get_params",
    "mgopt_solver",
    "root_print",
    "tb_adam_no_ls",
    "tb_get_injection_interp_params",
    "tb_get_injection_restrict_params",
    "tb_get_linear_interp_params",
    "tb_get_linear_restrict_params",
    "tb_injection_interp_network_state",
    "tb_injection_restrict_adam_state",
    "tb_injection_restrict_network_state",
    "tb_mgopt_cross_ent",
    "tb_mgopt_cross_ent_plus_continuity",
    "tb_mgopt_regression",
    "tb_parallel_get_injection_interp_params",
    "tb_parallel_get_injection_restrict_params",
    "tb_simple_backtrack_ls",
    "tb_simple_ls",
    "tb_simple_weighting",
    "tensor_list_AXPY",
    "tensor_list_deep_copy",
    "tensor_list_dot",
    "test",
    "train_epoch",
    "unpack_arg",
    "write_params_inplace",
]
